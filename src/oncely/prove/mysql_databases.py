"""Copies of MySQL and MariaDB databases, and a user of the server that may use nothing else.

A statement can name any database of its server. So a handler is connected as this user, and the
server refuses what would reach an original.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from oncely.model.errors import InvalidInput
from oncely.prove.abandoned import CopiedDatabase
from oncely.prove.mysql_schema import (
    SchemaObject,
    copy_rows,
    copy_tables,
    make_objects,
    name_quoted,
    object_names,
    plain_tables,
    read_objects,
    read_tables,
    set_next_id,
)

_OF_THE_SERVER: Final = {"information_schema", "performance_schema"}
_OPTIONS: Final = {"unix_socket", "ssl_ca", "ssl_cert", "ssl_key"}
_SESSION: Final = """
set sql_mode = 'NO_AUTO_VALUE_ON_ZERO', foreign_key_checks = 0, unique_checks = 0,
    lock_wait_timeout = 10, innodb_lock_wait_timeout = 10
"""
_CHARSET: Final = """
select default_character_set_name, default_collation_name from information_schema.schemata
where schema_name = %s
"""
_BLOCKED: Final = """
select 1 from information_schema.processlist p
left join information_schema.innodb_trx t on t.trx_mysql_thread_id = p.id
where p.user = %s
    and (t.trx_state = 'LOCK WAIT' or p.state like 'Waiting for%%' or p.state = 'User lock')
limit 1
"""


class Login(msgspec.Struct, frozen=True):
    """The user of the server that handlers are connected as."""

    user: str
    password: str

    @property
    def accounts(self) -> list[str]:
        # An anonymous user of localhost would be taken before one of every host.
        return [f"`{self.user}`@`{host}`" for host in ("%", "localhost")]


def connect(url: str, **options: Any) -> Any:
    try:
        import pymysql
    except ModuleNotFoundError:
        raise InvalidInput(
            "a MySQL database is copied by PyMySQL, whichever driver the handler uses: "
            "pip install pymysql"
        ) from None
    return pymysql.connect(**{**parameters(url), **options}, autocommit=True)


def parameters(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    options = {name: value for name, value in parse_qsl(parts.query) if name in _OPTIONS}
    return {
        "host": unquote(parts.hostname or "localhost"),
        "port": parts.port or 3306,
        "user": unquote(parts.username or "root"),
        "password": unquote(parts.password or ""),
        "database": unquote(parts.path.strip("/")),
        **options,
    }


class MysqlDatabase:
    """One database under proof: `now` is in use, `first` is how every schedule finds it, once that
    is known."""

    engine: Final = "mysql"

    def __init__(self, url: str, folder: Path, login: Login | None) -> None:
        self.url = url
        self.parts = parameters(url)
        self.name = str(self.parts["database"])
        token = secrets.token_hex(4)
        self.first = f"oncely_prove_{token}_first"
        self.now = f"oncely_prove_{token}_now"
        self.login = login or Login(f"oncely_prove_{token}", secrets.token_urlsafe(16) + "aA1-")
        self._admin: Any = None
        self._objects: list[SchemaObject] = []
        CopiedDatabase(url, [self.now, self.first], self.login.user).record(folder)
        try:
            self._make(is_new=login is None)
        except InvalidInput:
            self.close()
            raise
        except Exception as error:
            with suppress(Exception):
                self.close()
            raise InvalidInput(
                f"the MySQL database {self.name!r} cannot be copied: {error}. The user of its "
                "Table must be allowed to create databases and users and to grant, as root is"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which has connections of its own."""
        return {**vars(self), "_admin": None}

    @property
    def key(self) -> str:
        return f"{self.parts['host']}:{self.parts['port']}/{self.name}"

    def is_meant(self, port: int | None, name: str | None) -> bool:
        """`port` is None for a connection through a socket of the system."""
        is_server = port is None or "unix_socket" in self.parts or port == self.parts["port"]
        return is_server and (name is None or name in (self.name, self.now))

    def open_reader(self, *, first: bool) -> AbstractContextManager[Any]:
        connection = connect(self.url, database=self.first if first else self.now)
        with connection.cursor() as cursor:
            cursor.execute("set sql_mode = 'ANSI_QUOTES'")
        return closing(connection)

    def keep(self) -> None:
        """What is in it now is what every schedule begins with."""
        self._create(self.first)
        copy_tables(self.run, self.now, self.first)
        self._tables = read_tables(self.run, self.now)
        self._names = object_names(self.run, self.now)

    def restore(self) -> None:
        self._end_sessions()
        tables = read_tables(self.run, self.now)
        statements = {name: table.statement for name, table in tables.items()}
        if object_names(self.run, self.now) != self._names or statements != {
            name: table.statement for name, table in self._tables.items()
        }:
            self.run(f"drop database {name_quoted(self.now)}")
            self._create(self.now)
            copy_tables(self.run, self.first, self.now)
            make_objects(self.run, self.now, self._objects)
            return
        self._restore_rows()
        for name, table in self._tables.items():
            if table.next_id != tables[name].next_id:
                set_next_id(self.run, self.now, name, table.next_id)

    def _restore_rows(self) -> None:
        """Without the triggers, which would fire."""
        triggers = [each for each in self._objects if each.kind == "TRIGGER"]
        self.run(f"use {name_quoted(self.now)}")
        for each in triggers:
            self.run(f"drop trigger {name_quoted(each.name)}")
        for name in self._with_rows(self.now):
            self.run(f"delete from {name_quoted(name)}")
        for name in self._with_rows(self.first):
            copy_rows(self.run, self.first, self.now, name)
        make_objects(self.run, self.now, triggers)

    def _with_rows(self, database: str) -> list[str]:
        return [
            name
            for name in self._tables
            if self.run(f"select 1 from {name_quoted(database)}.{name_quoted(name)} limit 1")
        ]

    def is_blocked(self) -> bool:
        """Whether a connection of a handler waits for another one."""
        return bool(self.run(_BLOCKED, self.login.user))

    def close(self) -> None:
        self._end_sessions()
        drop(self.run, [self.now, self.first], self.login.user)
        self._admin.close()
        self._admin = None

    def run(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        if self._admin is None:
            self._admin = connect(self.url, database=None)
            self.run(_SESSION)
            # So that no row of the original is locked while it is copied.
            self.run("set session transaction isolation level read committed")
        with self._admin.cursor() as cursor:
            cursor.execute(text, values or None)
            return list(cursor.fetchall())

    def _make(self, *, is_new: bool) -> None:
        self._create(self.now)
        if is_new:
            for account in self.login.accounts:
                self.run(f"create user {account} identified by '{self.login.password}'")
        granted = name_quoted(self.now.replace("_", "\\_"))  # where _ stands for any character
        for account in self.login.accounts:
            self.run(f"grant all privileges on {granted}.* to {account}")
        self._check_login()
        copy_tables(self.run, self.name, self.now)
        self.plain_tables = plain_tables(self.run, self.now)
        self._objects = read_objects(self.run, self.name, self.login.accounts[0])
        make_objects(self.run, self.now, self._objects)

    def _create(self, name: str) -> None:
        found = self.run(_CHARSET, self.name)
        if not found:
            raise InvalidInput(
                f"there is no MySQL database {self.name!r} for its Table; expected "
                "mysql://user:password@host/database"
            )
        charset, collation = found[0]
        self.run(f"create database {name_quoted(name)} character set {charset} collate {collation}")

    def _check_login(self) -> None:
        own = {"user": self.login.user, "password": self.login.password, "database": self.now}
        with closing(connect(self.url, **own)) as server, server.cursor() as cursor:
            cursor.execute("show databases")
            seen = {str(name) for (name,) in cursor.fetchall()} - _OF_THE_SERVER
        open_to_all = sorted(name for name in seen if not name.startswith("oncely_prove_"))
        if open_to_all:
            raise InvalidInput(
                f"every user of this MySQL server may use {', '.join(open_to_all)}, so a handler "
                "under proof could write there: take these rights back, as "
                "`mariadb-secure-installation` does for the database test"
            )

    def _end_sessions(self) -> None:
        """Of handlers: an open transaction would be in the way."""
        for (number,) in self.run(
            "select id from information_schema.processlist where user = %s", self.login.user
        ):
            with suppress(Exception):  # it has ended by itself
                self.run(f"kill {number}")


def drop_abandoned(url: str, names: Iterable[str], user: str) -> bool:
    """False if the server does not answer."""
    import pymysql

    try:
        with closing(connect(url, database=None, connect_timeout=2)) as server:
            drop(lambda text: server.cursor().execute(text), names, user)
    except pymysql.Error:
        return False
    return True


def drop(run: Any, names: Iterable[str], user: str) -> None:
    for name in names:
        run(f"drop database if exists {name_quoted(name)}")
    for account in Login(user, "").accounts:
        run(f"drop user if exists {account}")
