"""The schema: made once, whoever asks; and an error that says what to do where it does not fit."""

import os
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg import sql as pg

from oncely import InvalidInput, NewJob, Oncely, SchemaError, StoreError, StoreUnavailable
from tests.cluster import Cluster
from tests.engine.racers import migrate, race
from tests.engine.steps import engine_of, sql

ROWS = "select number, name, checksum from oncely.migration order by number"
UNKNOWN = "01900000-0000-7000-8000-000000000000"

USES: dict[str, Callable[[Oncely], object]] = {
    "enqueue": lambda app: app.enqueue("k"),
    "enqueue_many": lambda app: app.enqueue_many([NewJob("k"), NewJob("k")]),
    "get": lambda app: app.get(UNKNOWN),
    "jobs": lambda app: app.jobs(),
    "cancel": lambda app: app.cancel(UNKNOWN),
    "replay": lambda app: app.replay(UNKNOWN),
    "migrate": lambda app: app.migrate(),
}
NEEDS_SCHEMA = [how for how in USES if how != "migrate"]


def use(url: str, how: str = "jobs") -> object:
    with Oncely(url) as app:
        return USES[how](app)


def labels(app: Oncely) -> list[str]:
    return [migration.label for migration in app._engine.library.migrations]


def test_migrate_names_what_it_applied_and_can_be_repeated(url: str) -> None:
    with Oncely(url) as app:
        assert app.migrate() == labels(app)
        app.enqueue("k")
        before = sql(app, ROWS)
        assert [row[1] for row in before] == labels(app)
        for _ in range(3):
            assert app.migrate() == []
    with Oncely(url) as again:
        assert again.migrate() == []
        assert sql(again, ROWS) == before
        assert len(again.jobs()) == 1


def test_eight_processes_at_once_apply_one_set(url: str) -> None:
    answers = race(migrate, [(url, "oncely")] * 8)
    with Oncely(url) as app:
        assert sorted(answers) == [[]] * 7 + [labels(app)]
        assert [row[1] for row in sql(app, ROWS)] == labels(app)
        assert app.enqueue("k").inserted


def test_eight_processes_at_once_in_eight_schemas(postgres_url: str) -> None:
    names = [f"s{number}" for number in range(8)]
    answers = race(migrate, [(postgres_url, name) for name in names])
    assert all(answer == answers[0] and answer for answer in answers)
    for name in names:
        with Oncely(postgres_url, schema=name) as app:
            assert app.enqueue("k", idempotency_key="same").inserted


@pytest.mark.parametrize("how", NEEDS_SCHEMA)
def test_on_postgres_a_missing_schema_is_an_error_that_names_the_command(
    postgres_url: str, how: str
) -> None:
    with pytest.raises(SchemaError, match=r"schema is missing.*`oncely migrate`") as caught:
        use(postgres_url, how)
    assert isinstance(caught.value, StoreError)


def test_on_postgres_an_app_made_before_the_migration_works_after_it(postgres_url: str) -> None:
    with Oncely(postgres_url) as early, Oncely(postgres_url) as app:
        with pytest.raises(SchemaError):
            early.enqueue("k")
        app.migrate()
        assert early.enqueue("k").inserted


def test_on_sqlite_the_schema_makes_itself(sqlite_url: str) -> None:
    with Oncely(sqlite_url) as app:
        assert app.enqueue("k").inserted


def test_on_sqlite_other_tables_in_the_file_are_left_alone(sqlite_url: str) -> None:
    with Oncely(sqlite_url) as app:
        sql(app, "create table users (id integer primary key, name text)")
        sql(app, "insert into users values (1, 'Ada')")
    with Oncely(sqlite_url) as app:
        app.enqueue("k")
        assert sql(app, "select * from users") == [(1, "Ada")]


@pytest.mark.parametrize("how", USES)
def test_a_newer_schema_is_refused(url: str, how: str) -> None:
    with Oncely(url) as app:
        app.migrate()
        sql(
            app,
            "insert into oncely.migration (number, name, checksum) values (9999, '9999_x', 'y')",
        )
        before = sql(app, ROWS)
        with pytest.raises(SchemaError, match=r"at migration 9999, newer .*upgrade oncely"):
            use(url, how)
        assert sql(app, ROWS) == before


@pytest.mark.parametrize("how", USES)
def test_a_migration_that_was_another_one_is_refused(url: str, how: str) -> None:
    with Oncely(url) as app:
        app.migrate()
        sql(app, "update oncely.migration set checksum = 'another' where number = 1")
    with pytest.raises(SchemaError, match=r"0001_jobs was applied .* in another form"):
        use(url, how)


@pytest.mark.parametrize("how", NEEDS_SCHEMA)
def test_on_postgres_an_older_schema_is_an_error_that_names_the_command(
    postgres_url: str, how: str
) -> None:
    """As left by a version whose migrations end before ours."""
    with Oncely(postgres_url) as app:
        app.migrate()
        sql(app, "delete from oncely.migration")
        sql(app, "insert into oncely.migration (number, name, checksum) values (0, '0000_x', 'y')")
    with pytest.raises(SchemaError, match=r"schema is older .*`oncely migrate`"):
        use(postgres_url, how)


def test_on_postgres_schemas_live_side_by_side(postgres_url: str) -> None:
    with Oncely(postgres_url) as one, Oncely(postgres_url, schema="second_1") as two:
        one.migrate()
        first = one.enqueue("k", 1, idempotency_key="i", unique_key="u")
        with pytest.raises(SchemaError):
            two.enqueue("k")
        assert two.migrate() == labels(two)
        second = two.enqueue("k", 2, idempotency_key="i", unique_key="u")
        assert first.inserted
        assert second.inserted
        assert [job.job_id for job in one.jobs()] == [first.job_id]
        assert [job.job_id for job in two.jobs()] == [second.job_id]
        assert two.get(first.job_id) is None


@pytest.mark.parametrize("name", ["_", "select", "user", "x" * 63])
def test_on_postgres_a_schema_may_have_a_word_of_sql_as_its_name(
    postgres_url: str, name: str
) -> None:
    with Oncely(postgres_url, schema=name) as app:
        app.migrate()
        job_id = app.enqueue("k", idempotency_key="i", unique_key="u").job_id
        app.cancel(job_id)
        assert [job.job_id for job in app.jobs(state="cancelled")] == [job_id]


def test_on_postgres_a_reserved_schema_name_is_an_error_of_ours(postgres_url: str) -> None:
    with Oncely(postgres_url, schema="pg_mine") as app, pytest.raises(StoreError, match="pg_mine"):
        app.migrate()


def test_on_postgres_a_role_that_may_only_use_a_schema_made_for_it_can_migrate(
    cluster: Cluster, postgres_url: str
) -> None:
    role = f"limited_{os.urandom(6).hex()}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(pg.SQL("create role {} login password 'pw'").format(pg.Identifier(role)))
        admin.execute("revoke create on schema public from public")
        admin.execute(pg.SQL("create schema oncely authorization {}").format(pg.Identifier(role)))
        database = admin.info.dbname
        admin.execute(
            pg.SQL("revoke create on database {} from public").format(pg.Identifier(database))
        )
    limited = (
        postgres_url.replace("//", f"//{role}:pw@", 1)
        if "@" not in postgres_url
        else (f"postgresql://{role}:pw@{postgres_url.partition('@')[2]}")
    )
    try:
        with Oncely(limited) as app:
            assert app.migrate() == labels(app)
            assert app.migrate() == []
            assert app.enqueue("k", idempotency_key="i", unique_key="u").inserted
        with (
            Oncely(limited, schema="elsewhere") as app,
            pytest.raises(StoreError, match="permission denied"),
        ):
            app.migrate()
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(pg.SQL("drop owned by {}").format(pg.Identifier(role)))
            admin.execute(pg.SQL("drop role {}").format(pg.Identifier(role)))


def test_on_postgres_another_encoding_is_refused(cluster: Cluster) -> None:
    name = f"latin_{os.urandom(6).hex()}"
    with psycopg.connect(cluster.url(), autocommit=True) as admin:
        admin.execute(
            pg.SQL("create database {} template template0 encoding 'LATIN1' locale 'C'").format(
                pg.Identifier(name)
            )
        )
    try:
        with Oncely(cluster.url(name)) as app, pytest.raises(SchemaError, match="needs UTF8"):
            app.migrate()
    finally:
        cluster.drop_database(name)


def test_a_migration_that_fails_leaves_nothing_behind(postgres_url: str) -> None:
    """A table of that name is in the way: all or nothing, and the next try can succeed."""
    with Oncely(postgres_url) as app:
        sql(app, "create schema oncely")
        sql(app, "create table oncely.unique_key (mine integer)")
        with pytest.raises(StoreError, match="unique_key"):
            app.migrate()
        tables = "select table_name from information_schema.tables where table_schema = 'oncely'"
        assert sql(app, tables) == [("unique_key",)]
        sql(app, "drop table oncely.unique_key")
        assert app.migrate() == labels(app)


def test_on_sqlite_a_file_that_cannot_be_one_is_a_clear_error(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to be looked at\n" * 100)
    with pytest.raises(StoreUnavailable, match=r"notes\.txt is not an SQLite database"):
        Oncely(f"sqlite:///{text}").migrate()
    assert text.read_text().startswith("not a database")
    with pytest.raises(StoreUnavailable, match="check that its folder exists"):
        Oncely(f"sqlite:///{tmp_path}/no/such/folder/jobs.db").migrate()
    with pytest.raises(StoreUnavailable):
        Oncely(f"sqlite:///{tmp_path}").migrate()


def test_on_sqlite_a_relative_path_means_the_same_file_after_a_change_of_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Oncely("sqlite:///jobs.db") as app:
        monkeypatch.chdir(tmp_path / "elsewhere")
        app.enqueue("k")
        assert len(app.jobs()) == 1
    assert (tmp_path / "jobs.db").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_on_sqlite_a_path_with_escapes_is_the_file_of_that_name(tmp_path: Path) -> None:
    with Oncely(f"sqlite:///{tmp_path}/my%20jobs%3F.db") as app:
        app.enqueue("k")
    assert (tmp_path / "my jobs?.db").exists()


def test_the_url_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONCELY_URL", "sqlite:///from-env.db")
    with Oncely() as app:
        assert app.url == "sqlite:///from-env.db"
        app.migrate()
    for unset in ("", None):
        if unset is None:
            monkeypatch.delenv("ONCELY_URL")
        else:
            monkeypatch.setenv("ONCELY_URL", unset)
        with Oncely() as app:
            assert app.url == "sqlite:///oncely.db"
            app.migrate()
    assert {path.name for path in tmp_path.glob("*.db")} == {"from-env.db", "oncely.db"}
    monkeypatch.setenv("ONCELY_URL", "nonsense")
    with pytest.raises(InvalidInput):
        Oncely()


def test_the_engine_follows_the_url(app: Oncely, url: str) -> None:
    assert app.url == url
    assert engine_of(app) == ("sqlite" if url.startswith("sqlite") else "postgres")
