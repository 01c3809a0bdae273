"""A server in a process of its own, on a port of its own, ended at the end of the block."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from driving import WrongCountError

START_SECONDS = 30.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(command: Sequence[str], port: int, env: Mapping[str, str]) -> Iterator[None]:
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _answers(port):
                if server.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise WrongCountError(f"the server did not start: {log.read()[-1500:]}")
                time.sleep(0.05)
            yield
        finally:
            server.terminate()
            try:
                server.wait(5)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
