"""docs/guide/prove-without-the-queue.md: its commands, run in the projects of `examples`."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from shlex import split

import pytest

from tests.surface.command import environment

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/guide/prove-without-the-queue.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
STEP = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
SMALL = ("--max-faults", "1", "--budget", "inf")
"""How much a budget of seconds is depends on the machine."""
PROJECTS = {"With Celery": "prove_celery", "With Django": "prove_django", "In CI": "prove_celery"}


def steps(section: str) -> list[tuple[str, str]]:
    return [step for block in BLOCK.findall(SECTIONS[section]) for step in STEP.findall(block)]


def proofs() -> list[tuple[str, str, str]]:
    return [
        (section, command, told)
        for section in PROJECTS
        for command, told in steps(section)
        if command.startswith("oncely ") and "--baseline" not in command
    ]


def run(command: list[str], folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    programs = {"oncely": ["-m", "oncely.surface.cli"], "python": []}
    return subprocess.run(
        [sys.executable, *programs[command[0]], *command[1:]],
        cwd=folder, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip


def set_up(section: str, folder: Path) -> tuple[Path, dict[str, str]]:
    """The project, after the commands of the page that come before the proofs."""
    project = Path(shutil.copytree(ROOT / "examples" / PROJECTS[section], folder / "project"))
    env = environment()
    for command, _ in steps(section):
        match split(command):
            case ["export", assignment]:
                name, _, value = assignment.partition("=")
                env[name] = value
            case ["python", *_] as words:
                done = run(words, project, env)
                assert done.returncode == 0, done.stderr
    return project, env


def plain(text: str) -> str:
    """Without what differs from run to run: ports, and the width of a column."""
    return re.sub(r"\s+", " ", re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)).strip()


@pytest.mark.parametrize(("section", "command", "told"), proofs())
def test_a_proof_of_the_page(section: str, command: str, told: str, tmp_path: Path) -> None:
    project, env = set_up(section, tmp_path)
    done = run([*split(command), *SMALL], project, env)
    assert done.stderr == ""
    assert done.returncode == (0 if told.endswith(": sound\n") else 1)
    found = plain(done.stdout)
    for line in told.splitlines():
        if line != "…":
            assert plain(line) in found


def test_the_baseline_of_the_page(tmp_path: Path) -> None:
    project, env = set_up("In CI", tmp_path)
    found = [command for command, _ in steps("In CI")]
    assert len(found) == 2
    for command in found:
        done = run([*split(command), *SMALL], project, env)
        assert (done.returncode, done.stderr) == (0, "")
        assert "8 of them in the baseline" in done.stdout
