"""A PostgreSQL primary with a streaming standby, both of the tests' own.

``with Replication() as replication: ...`` starts them from the programs that `tests.cluster` finds.
The standby can be held up, so that every COMMIT on the primary waits for it while replication is
synchronous; and it can be promoted.
"""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import psycopg

from tests.cluster import Cluster, ClusterError
from tests.waiting import wait_until

RECEIVER = "walreceiver"


class Standby(Cluster):
    """A hot standby that streams from the primary, which must be running."""

    def __init__(self, primary: Cluster) -> None:
        super().__init__(own=True)
        self._primary = primary

    def _make_data(self, data: Path) -> None:
        self._run(
            *("pg_basebackup", f"--pgdata={data}", f"--dbname={self._primary.url()}"),
            *("--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf", "--no-sync"),
        )


class Replication:
    """A primary and its standby. Replication is asynchronous until `synchronize`."""

    def __init__(self) -> None:
        self.primary = Cluster(own=True)
        self.standby = Standby(self.primary)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.primary)
            stack.enter_context(self.standby)
            wait_until(lambda: self.standby.processes(RECEIVER), "the standby does not stream")
            self._open = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.__exit__(kind, error, traceback)

    def url(self, database: str | None = None) -> str:
        """The address of a database that names both hosts, the primary first."""
        first, second = urlsplit(self.primary.url(database)), urlsplit(self.standby.url(database))
        hosts = f"{first.netloc},{second.hostname}:{second.port}"
        return first._replace(netloc=hosts, query="target_session_attrs=read-write").geturl()

    def synchronize(self) -> None:
        """From now on COMMIT on the primary waits until the standby has written it to its disk."""
        self._configure("ALTER SYSTEM SET synchronous_standby_names = '*'")
        wait_until(
            lambda: self._ask("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"),
            "the standby is not synchronous",
        )

    def desynchronize(self) -> None:
        """From now on no COMMIT waits, and those that wait go on."""
        self._configure("ALTER SYSTEM RESET synchronous_standby_names")

    def hold_up(self) -> None:
        """The standby receives nothing: while replication is synchronous, COMMIT waits."""
        if not self.standby.processes(RECEIVER):
            raise ClusterError("the standby receives nothing")
        self.standby.freeze(RECEIVER)

    def let_go_on(self) -> None:
        """The standby receives again, and every COMMIT that waited is answered."""
        self.standby.thaw()

    def disconnect(self) -> None:
        """The standby receives nothing any more, and is behind when it is promoted."""
        with psycopg.connect(self.standby.url(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
            connection.execute("SELECT pg_reload_conf()")
        wait_until(lambda: not self.standby.processes(RECEIVER), "the standby still streams")

    def waiting_commits(self) -> list[int]:
        """The primary's server processes whose COMMIT waits for the standby."""
        rows = self._ask("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        return [pid for (pid,) in rows]

    def promote(self) -> None:
        """Make the standby a primary. What it has not received is lost to it."""
        self.standby.thaw()
        with psycopg.connect(self.standby.url(), autocommit=True) as connection:
            row = connection.execute("SELECT pg_promote(true, 60)").fetchone()
        if row != (True,):
            raise ClusterError("the standby was not promoted within 60 s")

    def _ask(self, query: str) -> list[tuple[int]]:
        with psycopg.connect(self.primary.url(), autocommit=True) as connection:
            return connection.execute(query).fetchall()

    def _configure(self, setting: str) -> None:
        with psycopg.connect(self.primary.url(), autocommit=True) as connection:
            connection.execute(setting)
            connection.execute("SELECT pg_reload_conf()")
