"""Behind a pooler in transaction mode, where the next transaction may run in another session.

What is shown by which:

- `pgbouncer`: the real PgBouncer, in transaction mode with three sessions for all clients. This
  shows that the enqueue paths work through it.
- `stand-in`: a direct connection through our proxy, which tells the client a process id
  that is not its session's, as poolers do. This shows that a pooler is recognised, and that
  nothing is left in a session that a later transaction in another one would miss or meet: which
  is what safety behind a pooler consists of. It does not show that a pooler can be used: no
  transaction is ever moved to another session.
"""

import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from oncely import Context, NewJob, Oncely
from oncely.store.postgres.engine import PostgresEngine
from tests.cluster import free_port
from tests.crash.checker import check
from tests.crash.proxy import Proxy
from tests.crash.publishers import Call, calls
from tests.services import PGBOUNCER, programs
from tests.waiting import PATIENCE_SECONDS, wait_until

SESSIONS = 3
CONFIG = """
[databases]
{database} = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {sessions}
"""
# What PgBouncer itself sets in a session, to what the client has told it.
TRACKED = {"application_name", "client_encoding", "DateStyle", "IntervalStyle", "TimeZone"}
TRACKED |= {"standard_conforming_strings"}


class Pooled(NamedTuple):
    url: str
    direct_url: str
    real: bool


@contextmanager
def real_pooler(program: str, url: str) -> Iterator[str]:
    parts = urlsplit(url)
    listen = free_port()
    with tempfile.TemporaryDirectory(prefix="oncely-pooler-") as folder:
        Path(folder).chmod(0o755)
        config = Path(folder) / "pgbouncer.ini"
        config.write_text(
            CONFIG.format(
                database=parts.path.strip("/"),
                host=parts.hostname,
                port=parts.port or 5432,
                user=parts.username or "postgres",
                password=parts.password or "none",
                listen=listen,
                sessions=SESSIONS,
            )
        )
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        pooler = subprocess.Popen(
            [program, *user, config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _wait_for(listen, pooler)
            yield urlunsplit(parts._replace(netloc=f"postgres@127.0.0.1:{listen}"))
        finally:
            pooler.kill()
            pooler.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    def answers() -> bool:
        assert process.poll() is None, f"PgBouncer ended with {process.returncode}"
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            return False
        return True

    wait_until(answers, "PgBouncer answers")


@contextmanager
def stand_in(url: str) -> Iterator[str]:
    with Proxy(url) as proxy:
        proxy.process_id = 1
        yield proxy.url


@pytest.fixture(params=["stand-in", "pgbouncer"])
def pooled(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Pooled]:
    if request.param == "stand-in":
        with stand_in(postgres_url) as url:
            yield Pooled(url, postgres_url, real=False)
        return
    [program] = programs(PGBOUNCER)
    with real_pooler(program, postgres_url) as url:
        yield Pooled(url, postgres_url, real=True)


def use_everything(app: Oncely) -> int:
    """Every way in, several times, so that a driver that prepares statements would have done so;
    how many jobs that makes."""
    app.migrate()
    for call in calls("idempotency", 5) + calls("unique", 5) + calls("both", 5):
        first, again = call.send(app), call.send(app)
        assert (first.inserted, again.inserted) == (True, False)
        assert first.job_id == again.job_id
    jobs = 15
    for n in range(5):
        app.enqueue("plain")
        batch = [NewJob("b", unique_key=f"{n}-{i}", idempotency_key=f"{n}-{i}") for i in range(20)]
        assert app.enqueue_many(batch + batch).inserted == 20
        jobs += 21
    with ThreadPoolExecutor(16) as threads:
        shared = calls("both", 20, "thread")
        receipts = list(threads.map(lambda call: call.send(app), shared * 8))
        assert sum(receipt.inserted for receipt in receipts) == 20
        batches = [[Call(f"t-{i}", f"u-{i}").job() for i in range(n % 3, 50)] for n in range(12)]
        done = list(threads.map(app.enqueue_many, batches))
        assert sum(receipts.inserted for receipts in done) == 50
    jobs += 70
    for _ in range(3):
        job = app.enqueue("cancelled", unique_key="c")
        app.cancel(job.job_id)
        assert app.jobs(state="cancelled")
        found = app.get(job.job_id)
        assert found is not None
        assert found.state == "cancelled"
    return jobs + 3


def use_callers(app: Oncely, url: str) -> int:
    for n in range(8):
        with psycopg.connect(url, prepare_threshold=None) as tx:
            assert app.enqueue("tx", idempotency_key=f"tx-{n // 2}", unique_key="u", tx=tx)
            batch = [NewJob("tx", idempotency_key=f"tx-{n}-{i}") for i in range(3)]
            assert app.enqueue_many(batch, tx=tx).inserted == 3
            if n == 7:
                tx.rollback()
    return 1 + 7 * 3


def left_in(connection: psycopg.Connection) -> dict[str, int]:
    """What is in this session that would not be in another, or be in another's way."""
    left = {}
    for name, query in {
        "prepared statements": "select name from pg_prepared_statements",
        "settings": "select name from pg_settings where source = 'session'",
        "advisory locks": "select 1 from pg_locks where locktype = 'advisory' "
        "and database = (select oid from pg_database where datname = current_database())",
        "temporary tables": "select 1 from pg_class where relpersistence = 't'",
        "channels": "select pg_listening_channels()",
        "cursors": "select 1 from pg_cursors where is_holdable",
    }.items():
        rows = connection.execute(query.encode()).fetchall()
        left[name] = sum(row[0] not in TRACKED for row in rows)
    return left


def sessions(app: Oncely) -> list[psycopg.Connection]:
    """The connections that the app has at rest."""
    engine = app._engine
    assert isinstance(engine, PostgresEngine)
    assert engine._idle
    return list(engine._idle)


def test_every_way_in(pooled: Pooled) -> None:
    with Oncely(pooled.url) as app:
        jobs = use_everything(app) + use_callers(app, pooled.url)
    assert len(check(pooled.direct_url).jobs) == jobs


def test_many_apps_at_once(pooled: Pooled) -> None:
    """More clients than sessions, so each transaction gets the session that is free."""
    shared = calls("both", 30) + calls("idempotency", 30) + calls("unique", 30)

    def send(n: int) -> int:
        with Oncely(pooled.url) as app:
            batch = [call.job() for call in shared[n * 7 :] + shared[: n * 7]]
            inserted = sum(call.send(app).inserted for call in shared[n * 5 : n * 5 + 30])
            return inserted + app.enqueue_many(batch).inserted

    with Oncely(pooled.url) as app:
        app.migrate()
    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(send, range(8))) == len(shared)
    assert len(check(pooled.direct_url).jobs) == len(shared)


def test_nothing_is_left_in_a_session(pooled: Pooled) -> None:
    with Oncely(pooled.url) as app, ExitStack() as stack:
        use_everything(app)
        use_callers(app, pooled.url)
        seen = sessions(app)
        if pooled.real:
            # Each open transaction holds one session, so that all of them are seen.
            seen = [stack.enter_context(psycopg.connect(pooled.url)) for _ in range(SESSIONS)]
            pids = {each.execute("select pg_backend_pid()").fetchone() for each in seen}
            assert len(pids) == SESSIONS
        found = [left_in(connection) for connection in seen]
    for left in found:
        assert not any(left.values()), left


def test_a_serializable_default_is_not_ours(pooled: Pooled) -> None:
    """A statement by itself would run under that default, and two of them at once could fail."""
    database = urlsplit(pooled.direct_url).path.strip("/")
    with Oncely(pooled.direct_url) as app:
        app.migrate()
    with psycopg.connect(pooled.direct_url, autocommit=True) as server:
        default = "default_transaction_isolation = serializable"
        server.execute(f'alter database "{database}" set {default}')
        # PgBouncer may keep sessions that began before.
        server.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        server.execute(
            """
            create table public.seen (isolation text);
            create function public.see() returns trigger language plpgsql as $$
            begin
                insert into public.seen values (current_setting('transaction_isolation'));
                return null;
            end $$;
            create trigger see after insert on oncely.job
                for each statement execute function public.see();
            create trigger see after insert on oncely.lease
                for each statement execute function public.see();
            create trigger see after insert on oncely.outcome
                for each statement execute function public.see();
            """
        )
        with Oncely(pooled.url) as app:
            app.job("k")(lambda ctx: None)
            app.enqueue("k", unique_key="one")
            app.enqueue_many([NewJob("k"), NewJob("k")])
            assert app.drain() == 3
        assert set(server.execute("select isolation from public.seen").fetchall()) == {
            ("read committed",)
        }


def test_a_direct_connection_keeps_things(postgres_url: str) -> None:
    """So that the test before means something: here the same look finds what is left."""
    with Oncely(postgres_url) as app:
        use_everything(app)
        found = [left_in(connection) for connection in sessions(app)]
    assert any(left["prepared statements"] for left in found)
    assert all(left["settings"] for left in found)


def test_the_doctor_says_so(pooled: Pooled) -> None:
    for url, status, said in (
        (pooled.url, "warning", "a pooler such as PgBouncer is in between"),
        (pooled.direct_url, "ok", "none, a direct connection"),
    ):
        with Oncely(url) as app:
            app.migrate()
            (finding,) = [found for found in app.examine() if found.name == "pooler"]
        assert finding.status == status
        assert said in finding.detail


def test_workers_poll_and_whoever_waits_for_a_result_looks(pooled: Pooled) -> None:
    """Nothing can be listened to here; the job must run and its end be seen all the same."""
    with Oncely(pooled.url) as app:
        app.migrate()

        @app.job("k")
        async def handle(ctx: Context) -> str:
            return "done"

        worker = app.worker(poll_seconds=0.1)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            for _ in range(3):
                assert app.result(app.enqueue("k").job_id, timeout=PATIENCE_SECONDS) == "done"
        finally:
            worker.stop()
            thread.join()
        engine = app._engine
        assert isinstance(engine, PostgresEngine)
        assert not any(ear.covered for ear in engine._listener._ears)
    with psycopg.connect(pooled.direct_url) as connection:
        assert not any(left_in(connection).values())
