"""Programs of others that the tests run for real: Redis, MariaDB, PgBouncer, a browser and more.

`python -m tests.services` installs those that are missing, from Debian's packages, where this
process may do that; `make test` begins with it. The tests start each of them on the loopback
interface, in a temporary folder. Where one cannot be had its tests are skipped, and the run says in
one line what was left out and how to have it; with `CI=true` that is a failure.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

INSTALL_SECONDS = 600
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
POLICY = Path("/usr/sbin/policy-rc.d")


@dataclass(frozen=True)
class Service:
    """`programs`: each has one or more names, of which the first that is found is used."""

    packages: tuple[str, ...]
    programs: tuple[tuple[str, ...], ...]

    def find(self) -> list[str] | None:
        """The paths of all its programs, or None."""
        paths = [_find(names) for names in self.programs]
        return None if None in paths else [path for path in paths if path is not None]


# The shell is Chromium without its own windows, which nobody sees here: a third less to compute.
CHROMIUM = Service(
    ("chromium-headless-shell",),
    (("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"),),
)
CURL = Service(("curl",), (("curl",),))
MARIADB = Service(
    ("mariadb-server-core", "mariadb-client-core"),
    (("mariadbd", "mysqld"), ("mariadb-install-db", "mysql_install_db"), ("my_print_defaults",)),
)
NODE = Service(("nodejs",), (("node", "nodejs"),))
PGBOUNCER = Service(("pgbouncer",), (("pgbouncer",),))
REDIS = Service(("redis-server",), (("redis-server",),))
SERVICES = (CHROMIUM, CURL, MARIADB, NODE, PGBOUNCER, REDIS)


def _find(names: tuple[str, ...]) -> str | None:
    return next((path for name in names if (path := shutil.which(name, path=PATH))), None)


def programs(service: Service) -> list[str]:
    """The paths of its programs, for a test; without them the test is skipped, in CI it fails."""
    paths = service.find()
    if paths is not None:
        return paths
    told = f"there is no {service.programs[0][0]} here: {how_to_have([service])}"
    if in_ci():
        pytest.fail(told)
    pytest.skip(told)


def missing() -> list[Service]:
    return [service for service in SERVICES if service.find() is None]


def how_to_have(services: list[Service]) -> str:
    return f"apt-get install {' '.join(_packages(services))}"


def _packages(services: list[Service]) -> list[str]:
    return [package for service in services for package in service.packages]


def left_out() -> str | None:
    """One line that says what is missing and how to have it; None if nothing is."""
    absent = missing()
    if not absent:
        return None
    names = ", ".join(service.programs[0][0] for service in absent)
    return f"left out: all tests with {names}; to run them: {how_to_have(absent)} (as root)"


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def install() -> str | None:
    """Install what is missing. What went wrong, or None."""
    if not missing():
        return None
    if os.geteuid() != 0:
        return "only root can install packages"
    if shutil.which("apt-get") is None:
        return "there is no apt-get"
    with (Path(tempfile.gettempdir()) / "oncely-services.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second run at the same time waits
        absent = missing()
        if not absent:
            return None
        print(f"installing {', '.join(_packages(absent))}", flush=True)
        with _nothing_started():
            _apt("update")
            return _apt("install", "--yes", "--no-install-recommends", *_packages(absent))


@contextmanager
def _nothing_started() -> Iterator[None]:
    """Debian starts a service as soon as it is installed, unless this file says no."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _apt(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["apt-get", "-o", f"DPkg::Lock::Timeout={INSTALL_SECONDS}", *arguments],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return " ".join(done.stderr.split())[-300:] if done.returncode else None


def main() -> int:
    wrong = install()
    told = left_out()
    if told is None:
        return 0
    print(f"{told} ({wrong or 'installed, and still not found'})", file=sys.stderr)
    return 1 if in_ci() else 0


if __name__ == "__main__":
    sys.exit(main())
