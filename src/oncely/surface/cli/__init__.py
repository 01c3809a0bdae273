"""The command line: `oncely …`."""

from __future__ import annotations

import sys


def main() -> None:
    """What the script `oncely` runs."""
    try:
        # Late, so that Ctrl-C is quiet from the start, and the demo's publishers start light.
        from oncely.surface.cli.program import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
