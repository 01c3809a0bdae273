"""A debugger in a delivery: a person may take any time, so nobody gives the delivery up."""

from __future__ import annotations

import sys
from typing import Any

from oncely.prove.watch import Watch


def install(watch: Watch) -> None:
    """In the delivery. pdb and all that stand on `bdb` are seen when they begin to trace; pydevd,
    which VS Code and PyCharm use, is there from the beginning."""

    def hook(event: str, _: Any) -> None:
        traces = event in ("sys.settrace", "sys.monitoring.register_callback")
        if traces and sys._getframe(1).f_globals.get("__name__") == "bdb":
            watch.note("debugger", "bdb")

    sys.addaudithook(hook)
    if "pydevd" in sys.modules:
        watch.note("debugger", "pydevd")
