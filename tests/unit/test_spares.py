"""A database that a test has used is as new for the next one, or it is not used again."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from oncely import NewJob, Oncely
from oncely.store.postgres.engine import PostgresEngine
from oncely.store.postgres.wire import WireConnection
from tests.cluster import Cluster
from tests.spares import Spares, session


@pytest.fixture(scope="module")
def own(cluster: Cluster) -> Iterator[Spares]:
    with closing(Spares(cluster)) as spares:
        yield spares


def content(url: str) -> dict[str, object]:
    """The rows of every table, and where every sequence is; also of tables that are not ours."""
    with psycopg.connect(url) as connection:
        names = connection.execute(
            "select c.oid::regclass::text, c.relkind = 'S' from pg_class c"
            " where c.relnamespace in ('oncely'::regnamespace, 'public'::regnamespace)"
            " and c.relkind in ('r', 'S')"
        ).fetchall()
        return {
            name: connection.execute(
                f"select {'last_value, is_called' if sequence else '*'} from {name}".encode()
            ).fetchall()
            for name, sequence in names
        }


def use(url: str) -> None:
    with Oncely(url) as app:
        app.job("k")(lambda job: None)
        app.enqueue("k", idempotency_key="a")
        app.enqueue("k", delay=60, unique_key="b")
        app.drain()
        app.pause("default")
    with psycopg.connect(url) as connection:
        connection.execute('create table "Orders" (id serial primary key)')
        connection.execute('create table lines (id int references "Orders")')


def test_one_that_was_used_is_as_new(cluster: Cluster, own: Spares) -> None:
    name = own.take()
    before = content(cluster.url(name))
    for _ in range(3):
        use(cluster.url(name))
        assert content(cluster.url(name)) != before
        own.give_back(name)
        assert own.take() == name
        assert content(cluster.url(name)) == before
    own.give_back(name)


@pytest.mark.parametrize(
    "change",
    [
        "create sequence public.mine",
        "create view public.mine as select 1",
        "create type public.mine as enum ('a')",
        "create schema mine",
        "create function public.mine() returns int language sql as 'select 1'",
        "alter table oncely.job add column mine int",
        "alter table oncely.job set (fillfactor = 50)",
        "drop table oncely.tally",
        "delete from oncely.migration where number = 1",
        "update oncely.store set id = gen_random_uuid()",
        "drop schema oncely cascade",
        """create function oncely.mine() returns trigger language plpgsql as
           'begin return new; end';
           create trigger mine before insert on oncely.job
           for each row execute function oncely.mine()""",
    ],
)
def test_one_that_was_changed_is_not_used_again(cluster: Cluster, own: Spares, change: str) -> None:
    name = own.take()
    with psycopg.connect(cluster.url(name)) as connection:
        connection.execute(change.encode())
    own.give_back(name)
    assert own.take() != name


def test_one_with_a_setting_of_its_own_is_not_used_again(cluster: Cluster, own: Spares) -> None:
    name = own.take()
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute(f"alter database {name} set timezone = 'Asia/Tokyo'".encode())
    own.give_back(name)
    assert own.take() != name


def test_one_with_a_session_left_open_is_not_used_again(cluster: Cluster, own: Spares) -> None:
    name = own.take()
    with psycopg.connect(cluster.url(name)):
        own.give_back(name)
        assert own.take() != name


def test_one_whose_sessions_were_all_ended_is_used_again(cluster: Cluster, own: Spares) -> None:
    name = own.take()
    own.give_back(name)
    assert own.take() == name
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        ended = connection.execute(
            "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = %s",
            (name,),
        ).fetchall()
    assert ended == [(True,)]
    use(cluster.url(name))
    own.give_back(name)
    assert own.take() == name


def test_one_that_became_large_is_not_used_again(cluster: Cluster, own: Spares) -> None:
    name = own.take()
    with Oncely(cluster.url(name)) as app:
        app.enqueue_many([NewJob("k", secrets.token_hex(50_000)) for _ in range(60)])
    own.give_back(name)
    assert own.take() != name


def idle(app: Oncely) -> list[WireConnection]:
    assert isinstance(app._engine, PostgresEngine)
    return app._engine._idle


def pids(app: Oncely) -> list[int]:
    return [connection.info.backend_pid for connection in idle(app)]


def test_the_sessions_of_an_app_are_those_of_the_next(cluster: Cluster, own: Spares) -> None:
    name, seen = own.take(), []
    for _ in range(2):
        with Oncely(cluster.url(name)) as app, own.sessions_for(app):
            assert app.enqueue("k").inserted
            seen.append(pids(app))
        own.give_back(name)
        assert own.take() == name
    own.give_back(name)
    assert seen[0] == seen[1]


def prepare_nothing(connection: WireConnection) -> None:
    connection.prepare_threshold = None


def begin(connection: WireConnection) -> None:
    connection.execute("begin")


def end(connection: WireConnection) -> None:
    assert connection.url is not None
    with psycopg.connect(connection.url, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 60000)", (connection.info.backend_pid,))


@pytest.mark.parametrize("change", [prepare_nothing, begin, end])
def test_a_session_that_was_changed_is_not_used_again(
    cluster: Cluster, own: Spares, change: Callable[[WireConnection], None]
) -> None:
    name = own.take()
    with Oncely(cluster.url(name)) as app, own.sessions_for(app):
        app.enqueue("k")
        [connection] = idle(app)
        change(connection)
    own.give_back(name)
    assert own.take() == name
    with Oncely(cluster.url(name)) as app, own.sessions_for(app):
        assert pids(app) == []
    own.give_back(name)


def test_two_at_a_time_have_sessions_of_their_own(cluster: Cluster, own: Spares) -> None:
    name = own.take()
    with session(cluster.url(name)) as one, session(cluster.url(name)) as two:
        assert one.info.backend_pid != two.info.backend_pid
        kept = one.info.backend_pid
    with session(cluster.url(name)) as again:
        assert again.info.backend_pid == kept
    own.give_back(name)
