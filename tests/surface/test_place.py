"""Where the store is: named by option or environment, never made by looking, never betrayed."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from oncely import Oncely
from oncely.surface.cli.place import masked
from oncely.surface.cli.program import run
from tests.surface.command import Command

JOB_ID = "01a1e167-7239-75cf-8141-9bcd7a8dc380"
READING = [["jobs"], ["show", JOB_ID], ["cancel", JOB_ID], ["replay", JOB_ID], ["dlq"]]


@pytest.mark.parametrize("args", READING, ids=lambda args: str(args[0]))
def test_looking_makes_no_file(
    args: list[str], here: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("ONCELY_URL", raising=False)
    done = here(*args)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"oncely: there is no store at {folder}/oncely.db: check --url or $ONCELY_URL, or make "
        "one with `oncely migrate`\n"
    )
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("args", READING, ids=lambda args: str(args[0]))
def test_looking_leaves_another_program_s_database_alone(
    args: list[str], here: Command, folder: Path
) -> None:
    path = folder / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table theirs (id)")
    before = path.read_bytes()
    done = here(*args, "--url", f"sqlite:///{path}")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"oncely: there is no store at {path}: ")
    assert path.read_bytes() == before
    assert list(folder.iterdir()) == [path]


def test_a_folder_that_is_not_there(here: Command, folder: Path) -> None:
    done = here("enqueue", "k", "--url", f"sqlite:///{folder}/no/such/folder.db")
    assert done.code == 1
    assert done.err.startswith(f"oncely: {folder}/no/such/folder.db cannot be opened: ")


def test_the_store_of_the_environment(oncely: Command, folder: Path) -> None:
    assert oncely("enqueue", "k", ONCELY_URL="sqlite:///env.db").code == 0
    assert oncely("enqueue", "k", "--url", "sqlite:///option.db", ONCELY_URL="nonsense").code == 0
    assert oncely("enqueue", "k", ONCELY_URL="").code == 0
    assert {path.name for path in folder.glob("*.db")} == {"env.db", "option.db", "oncely.db"}
    for name in ("env", "option", "oncely"):
        with Oncely(f"sqlite:///{folder}/{name}.db") as app:
            assert len(app.jobs()) == 1


SECRETS = [
    "postgresql://ann:s3cret@127.0.0.1:1/db",
    "postgresql://ann:s3cret@127.0.0.1:x/db",
    "postgresql://ann:s3cret@[::1/db",
    "postgresql://ann:s3%zzcret@127.0.0.1:1/db",
    "postgresql://ann:s3@s3cret@127.0.0.1:1/db",
    "postgresql://ann:s3/s3cret@127.0.0.1:1/db",
    "postgresql://ann:s3?s3cret=1@127.0.0.1:1/db",
    "postgresql://ann@127.0.0.1:1/db?password=s3cret",
    "postgresql://ann@127.0.0.1:1/db?bogus=1&password=s3cret",
    "postgresql:/ann:s3cret@127.0.0.1:1/db",
    "postgresql:ann:s3cret@127.0.0.1:1/db",
    "ann:s3cret@127.0.0.1:1/db",
    "mysql://ann:s3cret@127.0.0.1:1/db",
]


@pytest.mark.parametrize("url", SECRETS)
def test_the_password_is_never_shown(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "s3" not in masked(url)
    for args in (["jobs"], ["doctor"], ["migrate"], ["demo"], ["enqueue", "k", "--json"]):
        assert run([*args, "--url", url]) in (1, 2)
        said = capsys.readouterr()
        assert "s3" not in said.out + said.err
        assert said.out + said.err != ""
    monkeypatch.setenv("ONCELY_URL", url)
    assert run(["jobs"]) in (1, 2)
    assert "s3" not in capsys.readouterr().err


def test_an_address_without_password_is_shown_as_it_is() -> None:
    for url in (
        "postgresql://ann@host:5432/db",
        "postgresql://host:5432/db?user=ann@realm",
        "sqlite:///a@b:c.db",
        "sqlite:////srv/a:b@c.db",
    ):
        assert masked(url) == url
