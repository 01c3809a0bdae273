"""Copies of PostgreSQL databases, made from templates, so that the originals are never written."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from oncely.model.errors import InvalidInput
from oncely.prove.abandoned import CopiedDatabase
from oncely.prove.idle_pools import own_sessions
from oncely.prove.mysql_databases import MysqlDatabase, parameters
from oncely.prove.rows import Rows

_SESSIONS: Final = """
select pid, application_name, coalesce(state, 'starting') from pg_stat_activity
where datname = %s order by pid
"""


class Database:
    """One database under proof: `now` is in use, `first` is how every schedule finds it, once that
    is known."""

    engine: Final = "postgres"

    def __init__(self, conninfo: str, folder: Path) -> None:
        from psycopg import conninfo as infos

        self.url = conninfo
        self.parts = infos.conninfo_to_dict(conninfo)
        self.name = str(self.parts.get("dbname") or self.parts.get("user") or "")
        token = secrets.token_hex(4)
        self.first = f"oncely_prove_{token}_first"
        self.now = f"oncely_prove_{token}_now"
        self._admin: Any = None
        self._session: Any = None
        self._rows: Rows | None = None
        CopiedDatabase(self.conninfo("postgres"), [self.now, self.first]).record(folder)
        try:
            self._copy(self.name, self.now)
        except BaseException:
            self._disconnect()
            raise

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which has connections of its own."""
        return {**vars(self), "_admin": None, "_session": None, "_rows": None}

    def conninfo(self, name: str | None = None) -> str:
        from psycopg import conninfo as infos

        return infos.make_conninfo("", **{**self.parts, "dbname": name or self.now})

    @property
    def key(self) -> str:
        return self.conninfo(self.name)

    def open_reader(self, *, first: bool) -> AbstractContextManager[Any]:
        import psycopg

        if first:
            return psycopg.connect(self.conninfo(self.first), autocommit=True)
        return nullcontext(self.session())

    def is_meant(self, port: int | None, name: str) -> bool:
        if name not in (self.name, self.now):
            return False
        own_port = str(self.parts.get("port") or 5432)
        return port is None or str(port) == own_port

    def session(self) -> Any:
        """A connection to the copy in use, for the process that proves."""
        import psycopg

        if self._session is None or self._session.closed:
            self._session = psycopg.connect(self.conninfo(), autocommit=True)
        return self._session

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()

    def restore(self, release: Callable[[], None]) -> None:
        if self._rows is not None and self._rows.restore(self.session()):
            return
        self._rows = None
        self._copy_anew(release)

    def _copy_anew(self, release: Callable[[], None]) -> None:
        self._end_session()
        release()
        self._run(f'drop database if exists "{self.now}" with (force)')
        self._copy(self.first, self.now)

    def save_rows(self) -> Rows | None:
        """What is committed by now, or None if that cannot be told."""
        return self._rows and self._rows.read_again(self.session())

    def load_rows(self, rows: Rows, release: Callable[[], None]) -> None:
        if not rows.restore(self.session()):
            self._copy_anew(release)
            if not rows.restore(self.session()):
                raise InvalidInput(
                    f"the copy of the PostgreSQL database {self.name!r} cannot be written: does "
                    "another process use it?"
                )

    def keep(self) -> None:
        """What is in it now is what every schedule begins with."""
        self._end_session()
        self._copy(self.now, self.first)
        self._rows = Rows.of(self.conninfo())

    def close(self) -> None:
        self._end_session()
        for name in (self.now, self.first):
            self._run(f'drop database if exists "{name}" with (force)')
        self._disconnect()

    def _disconnect(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _copy(self, source: str, target: str) -> None:
        import psycopg

        try:
            self._run(f'create database "{target}" template "{source}"')
        except psycopg.errors.ObjectInUse:
            if source != self.name:
                self._end_sessions(source)
                self._run(f'create database "{target}" template "{source}"')
                return
            raise InvalidInput(
                f"the PostgreSQL database {source!r} cannot be copied while others are connected "
                f"to it: {self._sessions(source)}. Close them, end them with `select "
                "pg_terminate_backend(pid)`, or prove against a database of its own"
            ) from None
        except psycopg.errors.InsufficientPrivilege:
            raise InvalidInput(
                f"the PostgreSQL database {source!r} cannot be copied: its user may not create "
                "databases. Prove with one that may: alter role … createdb"
            ) from None

    def _sessions(self, name: str) -> str:
        """Who is connected to it."""
        own = own_sessions()
        rows = self._run(_SESSIONS, name).fetchall()
        return ", ".join(
            f"pid {pid} (application_name {application!r}, {state}"
            f"{', opened by this process' if pid in own else ''})"
            for pid, application, state in rows
        )

    def _end_sessions(self, name: str) -> None:
        self._run(f"select pg_terminate_backend(pid) from pg_stat_activity where datname='{name}'")

    def _run(self, text: str, *values: str) -> Any:
        import psycopg

        if self._admin is None:
            self._admin = psycopg.connect(self.conninfo("postgres"), autocommit=True)
        return self._admin.execute(text.encode(), values or None)


class Databases:
    def __init__(self, folder: Path) -> None:
        self.all: list[Database] = []
        self.mysql: list[MysqlDatabase] = []
        self._folder = folder

    def add(self, url: str) -> Database:
        try:
            from psycopg import conninfo as infos
        except ModuleNotFoundError:
            raise InvalidInput(
                "a PostgreSQL database is copied by psycopg 3, whichever driver the handler uses: "
                "pip install 'oncely[postgres]'"
            ) from None
        parts = infos.conninfo_to_dict(url)
        for known in self.all:
            if all(known.parts.get(name) == parts.get(name) for name in ("host", "port", "dbname")):
                return known
        made = Database(url, self._folder)
        self.all.append(made)
        return made

    def add_server(self, url: str) -> Database | MysqlDatabase:
        if not url.startswith(("mysql", "mariadb")):
            return self.add(url)
        parts = parameters(url)
        place = parts["host"], parts["port"]
        login = None
        for known in self.mysql:
            if (known.parts["host"], known.parts["port"]) == place:
                if known.name == parts["database"]:
                    return known
                login = known.login
        self.mysql.append(MysqlDatabase(url, self._folder, login))
        return self.mysql[-1]

    def servers(self) -> list[Database | MysqlDatabase]:
        return [*self.all, *self.mysql]

    def mysql_database(self, port: int | None, name: str | None) -> MysqlDatabase | None:
        return next((each for each in self.mysql if each.is_meant(port, name)), None)

    def mysql_plain_tables(self) -> frozenset[str]:
        return frozenset().union(*(each.plain_tables for each in self.mysql))

    def conninfo(self, conninfo: str) -> str | None:
        if not self.all:
            return None
        from psycopg import conninfo as infos

        parts = infos.conninfo_to_dict(conninfo)
        port = parts.get("port")
        name = str(parts.get("dbname") or parts.get("user") or "")
        for known in self.all:
            if known.is_meant(int(port) if port else None, name):
                return infos.make_conninfo("", **{**parts, "dbname": known.now})
        return None

    def database(self, port: int | None, name: str) -> str | None:
        return next((each.now for each in self.all if each.is_meant(port, name)), None)

    def restore(self, release: Callable[[], None]) -> None:
        for each in self.all:
            each.restore(release)
        for copy in self.mysql:
            copy.restore()

    def save_rows(self) -> list[Rows] | None:
        found = []
        for each in self.all:
            rows = each.save_rows()
            if rows is None:
                return None
            found.append(rows)
        return found

    def load_rows(self, saved: Sequence[Rows], release: Callable[[], None]) -> None:
        """A database that was not known then is as it was at the beginning."""
        for number, each in enumerate(self.all):
            if number < len(saved):
                each.load_rows(saved[number], release)
            else:
                each.restore(release)

    def conninfos(self) -> list[str]:
        """Of the copies in use."""
        return [each.conninfo() for each in self.all]

    def close(self) -> None:
        for each in self.servers():
            each.close()


def as_url(conninfo: str) -> str:
    """A PostgreSQL store is named by a URL."""
    from urllib.parse import quote, urlencode

    from psycopg.conninfo import conninfo_to_dict

    parts = {name: str(value) for name, value in conninfo_to_dict(conninfo).items()}
    name = quote(parts.pop("dbname", ""), safe="")
    return f"postgresql:///{name}?{urlencode(parts)}"
