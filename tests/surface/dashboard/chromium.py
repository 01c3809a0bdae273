"""The browser of the tests: Debian's Chromium, driven by playwright."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.services import CHROMIUM, programs
from tests.waiting import PATIENCE_SECONDS


@contextmanager
def running() -> Iterator[Browser]:
    # As root there is no sandbox; and the shared memory of a container is too small for it.
    options = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.getuid() == 0 else [])]
    [path] = programs(CHROMIUM)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=options, timeout=PATIENCE_SECONDS * 1000
        )
        yield browser
        browser.close()
