"""A server of a proof's world: on loopback, in a thread of this process."""

from __future__ import annotations

import threading
from socketserver import ThreadingMixIn
from typing import Any, ClassVar, Self


class LoopbackServer:
    """Serves until it is closed. `address` is where: `127.0.0.1:25001`."""

    memory: ClassVar[str]
    """The attribute that has what it did. A delivery is given that, for a handler may look there.
    """

    def __init__(self, server: Any, name: str) -> None:
        if isinstance(server, ThreadingMixIn):
            server.daemon_threads = True
            server.block_on_close = False
        self._server = server
        self.port: int = server.server_address[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=server.serve_forever, args=(0.05,), name=name, daemon=True).start()

    def save(self) -> Any:
        """What it knows by now, for `load`."""
        raise NotImplementedError

    def load(self, saved: Any) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
