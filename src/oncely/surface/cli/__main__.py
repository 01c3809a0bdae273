"""`python -m oncely.surface.cli`: the same as the script."""

from oncely.surface.cli import main

main()
