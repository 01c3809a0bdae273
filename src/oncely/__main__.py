"""`python -m oncely …` is the command line `oncely …`."""

from __future__ import annotations

from oncely.surface.cli import main

if __name__ == "__main__":
    main()
