from functools import partial
from pathlib import Path

import pytest

from oncely.surface.cli.program import run as run_here
from tests.surface.command import LOOKS, Command, Done, run


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the terminal of whoever runs the tests is like."""
    for name in LOOKS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the commands run: an empty folder."""
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def oncely(folder: Path) -> Command:
    """The installed script, run in that folder with no store named."""
    return partial(run, cwd=folder)


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Command:
    """The same command line inside this process: it saves the start of one each time."""

    def command(*args: str) -> Done:
        capsys.readouterr()
        code = run_here(args)
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return command


@pytest.fixture
def at(here: Command, url: str) -> Command:
    """The command line with `--url` of an empty store on each engine in turn, migrated."""
    assert here("migrate", "--url", url).code == 0
    return lambda *args: here(*args, "--url", url)
