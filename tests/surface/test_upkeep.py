from pathlib import Path

from tests.surface.command import Command, migrations, on_terminal

UNREACHABLE = "postgresql://ann:s3cret@127.0.0.1:1/db"


def test_migrate(here: Command, url: str) -> None:
    done = here("migrate", "--url", url)
    assert (done.code, done.out, done.err) == (
        0,
        "".join(f"applied {name}\n" for name in migrations(url)),
        "",
    )
    assert here("migrate", "--url", url).out == "nothing to do: the schema is up to date\n"
    assert here("migrate", "--url", url, "--json").json() == {"applied": []}


def test_migrate_another_schema(here: Command, postgres_url: str) -> None:
    place = ("--url", postgres_url, "--schema", "other")
    assert here("migrate", *place, "--json").json() == {"applied": migrations(postgres_url)}
    assert here("enqueue", "k", *place).code == 0
    assert len(here("jobs", *place, "--json").json()) == 1
    assert here("jobs", "--url", postgres_url).code == 1


def test_doctor(at: Command, url: str) -> None:
    done = at("doctor")
    assert done.code == 0
    findings = at("doctor", "--json").json()
    assert {finding["name"] for finding in findings} >= {"store", "schema", "durability", "clock"}
    assert all(tuple(finding) == ("name", "status", "detail") for finding in findings)
    lines = [line.split()[0] for line in done.out.splitlines()]
    assert lines == [finding["status"] for finding in findings]


def test_doctor_without_schema(here: Command, postgres_url: str) -> None:
    done = here("doctor", "--url", postgres_url)
    assert (done.code, done.err) == (1, "")
    [line] = [line for line in done.out.splitlines() if line.startswith("error")]
    assert line.split(maxsplit=2)[1] == "schema"
    assert "run `oncely migrate`" in line


def test_doctor_where_nobody_answers(here: Command) -> None:
    done = here("doctor", "--url", UNREACHABLE)
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("error    store  PostgreSQL cannot serve this call: ")
    assert done.out.endswith(". Check --url or $ONCELY_URL, and that the server is up\n")
    assert done.out.count("\n") == 1
    done = here("doctor", "--url", UNREACHABLE, "--json")
    assert done.code == 1
    assert '"status":"error"' in done.out


def test_doctor_where_there_is_no_file(oncely: Command, folder: Path) -> None:
    done = oncely("doctor")
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith(f"error    store  there is no store at {folder}/oncely.db: ")
    assert list(folder.iterdir()) == []


def test_doctor_where_there_is_another_file(here: Command, folder: Path) -> None:
    (folder / "oncely.db").write_text("not a database at all, but long enough to be looked at")
    done = here("doctor", "--url", f"sqlite:///{folder}/oncely.db")
    assert done.code == 1
    assert "is not an SQLite database" in done.out


def test_doctor_folds_long_findings_on_a_terminal(folder: Path) -> None:
    url = f"sqlite:///{folder}/{'folder/' * 20}x.db"
    done = on_terminal("doctor", "--url", url, cwd=folder)
    assert done.code == 1
    lines = done.out.splitlines()
    assert len(lines) > 1
    assert all(line.startswith(" " * 16) for line in lines[1:])
