"""An environment of its own for each peer, made when it is first needed, under `.bench/env`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.peers.roster import NODE, System

ROOT: Final = Path(__file__).resolve().parents[2]
BENCH: Final = ROOT / ".bench"
DRIVERS: Final = Path(__file__).resolve().parent / "drivers"
INSTALL_SECONDS: Final = 600.0


class CannotBeHad(Exception):
    """A peer that could not be made ready, and why."""


def command(system: System) -> tuple[list[str], dict[str, str]]:
    """How its driver is started, and with what environment variables; makes what is missing."""
    driver = str(DRIVERS / system.driver)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "ONCELY_", "PYTHON"))}
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    if system.runtime == "ours":
        return [sys.executable, driver], env
    home = BENCH / "env" / system.home
    if system.runtime == "python":
        _make_venv(system, home)
        env["PATH"] = f"{home / 'bin'}:{env['PATH']}"
        return [str(home / "bin" / "python"), driver], env
    node = _make_node()
    _make_modules(system, home, node)
    env["ONCELY_BENCH_MODULES"] = str(home)
    return [str(node), driver], env


def _make_venv(system: System, home: Path) -> None:
    if _is_made(home, system.packages):
        return
    python = _python(system.python)
    shutil.rmtree(home, ignore_errors=True)
    _run([python, "-m", "venv", str(home)])
    pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    _run([*pip, "install", "--quiet", *system.packages])
    _mark(home, system.packages)


def _python(least: tuple[int, int]) -> str:
    if sys.version_info[:2] >= least:
        return sys.executable
    for minor in range(least[1], least[1] + 6):
        for found in _pythons(f"{least[0]}.{minor}"):
            if _is_python(found):
                return found
    raise CannotBeHad(
        f"it needs Python {least[0]}.{least[1]} or newer, and this machine has "
        f"{sys.version_info[0]}.{sys.version_info[1]}"
    )


def _pythons(version: str) -> Iterator[str]:
    """On the PATH, and those that pyenv keeps beside it."""
    if found := shutil.which(f"python{version}"):
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    yield from map(str, sorted(pyenv.glob(f"{version}.*/bin/python{version}")))


def _is_python(path: str) -> bool:
    """pyenv puts names on the PATH that lead nowhere."""
    return subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0


def _make_node() -> Path:
    """A Node that is new enough for all of them, from npm itself: the system's may be older."""
    home = BENCH / "env" / "node"
    node = home / "node_modules" / ".bin" / "node"
    if not _is_made(home, [NODE]):
        _npm(home, [NODE], os.environ["PATH"])
    return node


def _make_modules(system: System, home: Path, node: Path) -> None:
    if not _is_made(home, system.packages):
        _npm(home, system.packages, f"{node.parent}:{os.environ['PATH']}")


def _npm(home: Path, packages: Sequence[str], path: str) -> None:
    if shutil.which("npm") is None:
        raise CannotBeHad("npm is not installed")
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    (home / "package.json").write_text('{"private": true}\n')
    flags = ["--no-audit", "--no-fund", "--loglevel=error"]
    _run(["npm", "install", "--save-exact", *flags, *packages], cwd=home, path=path)
    _mark(home, packages)


def _is_made(home: Path, packages: Sequence[str]) -> bool:
    mark = home / "made.json"
    return mark.exists() and json.loads(mark.read_text()) == list(packages)


def _mark(home: Path, packages: Sequence[str]) -> None:
    """Last, so that a mark means a finished install of exactly these."""
    (home / "made.json").write_text(json.dumps(list(packages)))


def _run(arguments: Sequence[str], *, cwd: Path | None = None, path: str | None = None) -> None:
    env = {**os.environ, **({"PATH": path} if path else {})}
    try:
        done = subprocess.run(
            arguments,
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBeHad(f"{Path(arguments[0]).name}: {error}") from error
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        why = next((line for line in said if "ERROR" in line or "error" in line), "it failed")
        raise CannotBeHad(f"its packages cannot be installed: {why.strip()[:300]}")
