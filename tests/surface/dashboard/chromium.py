"""The browser of the tests: Debian's Chromium, driven by playwright.

On the PATH, else installed by apt where this process may do that. Where it cannot be had the run
says so: on a machine of one's own the tests are skipped, in CI (`$CI` is set) they fail.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
INSTALL = ("apt-get", "install", "-y", "--no-install-recommends", "chromium")
INSTALL_SECONDS = 600


def found() -> str | None:
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


def program() -> str:
    """Its path. Processes of one run that come at the same time wait for the one that installs."""
    path = found()
    if path is not None:
        return path
    said = "apt-get needs root"
    if os.getuid() == 0 and shutil.which("apt-get"):
        with (Path(tempfile.gettempdir()) / "oncely-chromium.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = found()
            if path is None:
                said = _install()
                path = found()
    if path is not None:
        return path
    told = f"no Chromium for the browser tests: apt-get install chromium ({said})"
    if os.environ.get("CI"):
        pytest.fail(told)
    pytest.skip(told)


def _install() -> str:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (("apt-get", "update"), INSTALL):
        try:
            done = subprocess.run(
                command,
                env=env,
                capture_output=True,
                text=True,
                check=False,
                timeout=INSTALL_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode != 0 and command is INSTALL:
            return " ".join(done.stderr.split())[-300:]
    return "installed, and still not found"


@contextmanager
def running() -> Iterator[Browser]:
    # As root there is no sandbox; and the shared memory of a container is too small for it.
    options = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.getuid() == 0 else [])]
    path = program()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()
