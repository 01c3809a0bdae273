"""Run as a program: print what a user without special rights is told on enqueueing."""

import sys

from oncely import Oncely, StoreUnavailable

try:
    with Oncely(f"sqlite:///{sys.argv[1]}") as app:
        print("taken in", app.enqueue("k"))
except StoreUnavailable as error:
    print(error)
