"""The command line: `oncely …`."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import Final, NoReturn

_JOIN_SECONDS: Final = 1.0


def main() -> None:
    """What the script `oncely` runs."""
    try:
        # Late, so that Ctrl-C is quiet from the start, and the demo's publishers start light.
        from oncely.surface.cli.program import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    _leave(code)


def _leave(code: int) -> NoReturn:
    """Python waits for every thread before it ends, also for a handler's that never returns."""
    deadline = time.monotonic() + _JOIN_SECONDS
    threads = [each for each in threading.enumerate() if each.name.startswith("oncely-handler")]
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    stuck = sum(thread.is_alive() for thread in threads)
    if stuck:
        from oncely.surface.cli.say import complain

        complain(
            "warning",
            "HandlerStuck",
            f"{stuck} {'handler has' if stuck == 1 else 'handlers have'} not returned, and a "
            "thread cannot be ended from outside: the process ends without waiting. What was not "
            "done runs again in another worker",
            as_json="--json" in sys.argv,
        )
        end_process(code)
    sys.exit(code)


def end_process(code: int) -> NoReturn:
    """Without waiting for threads."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
