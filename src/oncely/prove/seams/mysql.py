"""MySQL and MariaDB: PyMySQL by the methods that send a command and read its answer. SQLAlchemy
and Django come through these."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

from oncely.prove.seams.names import ends_one, written_tables
from oncely.prove.seams.postgres_faults import cut
from oncely.prove.seams.statements import forget_writes, refuse_database, tell_statement, text_of
from oncely.prove.watch import Watch, knowing, known

if TYPE_CHECKING:
    from oncely.prove.copies import Copies

_IN_TRANSACTION: Final = 1
_AUTOCOMMIT: Final = 2
"""Flags of `server_status`."""
_DENIED: Final = (1044, 1142, 1143, 1227, 1370)
_USE: Final = re.compile(r"\s*use\s+`?([^`;\s]+)`?\s*;?\s*", re.IGNORECASE)
_SETS_AUTOCOMMIT: Final = re.compile(r"\s*set\s+autocommit\s*=\s*(1|on|true)\b", re.IGNORECASE)
_QUIET: Final = re.compile(r"\s*(set|show)\s", re.IGNORECASE)
_COMMITS_BY_ITSELF: Final = re.compile(
    r"\s*((create|drop)(?!\s+temporary)|alter|truncate|rename|lock\s+tables|analyze|optimize)\b",
    re.IGNORECASE,
)
_INHERITED: Final = (
    "a connection to MySQL that was opened before the handler ran is used by it: it would write to "
    "the database itself, not to the copy that is under proof. Open it in the handler"
)


def install(watch: Watch, copies: Copies) -> None:
    if "pymysql" not in sys.modules:
        return
    from pymysql import MySQLError  # `pymysql.err` is another one where it stands for MySQLdb
    from pymysql.connections import Connection
    from pymysql.constants import COMMAND

    connection_class: Any = Connection
    connect, execute = connection_class.connect, connection_class._execute_command

    def watched_connect(self: Any, sock: Any = None) -> None:
        port = None if self.unix_socket else self.port
        database = copies.databases.mysql_database(port, self.db)
        if database is None:
            refuse_database(watch, "MySQL", self.db)
        self.user, self.password = database.login.user, database.login.password.encode()
        if self.db is not None:
            self.db = database.now
        self._oncely_is_open = True
        with knowing():
            connect(self, sock)

    def renamed(name: str) -> str:
        database = copies.databases.mysql_database(None, name)
        return name if database is None else database.now

    def watched_execute(self: Any, command: int, sql: Any) -> None:
        if not known.get():
            if "_oncely_is_open" not in vars(self):
                watch.refuse(_INHERITED)
            if command == COMMAND.COM_INIT_DB:
                sql = renamed(text_of(sql, self))
            elif command == COMMAND.COM_QUERY:
                if used := _USE.fullmatch(text_of(sql, self)):
                    sql = f"use `{renamed(used[1])}`"
                else:
                    _tell(watch, copies, self, text_of(sql, self))
        execute(self, command, sql)

    def watched_read(name: str) -> Any:
        read = getattr(connection_class, name)

        def watched(self: Any, *args: Any, **options: Any) -> Any:
            try:
                value = read(self, *args, **options)
            except MySQLError as error:
                if error.args[0] in _DENIED and not known.get():
                    watch.refuse(
                        f"the handler goes beyond the copy of its database: {error.args[1]}. No "
                        "copy can stand for another database of the server, nor for its settings; "
                        "a statement must not name the database of its tables"
                    )
                raise
            if vars(self).pop("_oncely_loses", False):
                cut(self._sock.fileno())
                self._read_packet()  # it raises
            return value

        return watched

    connection_class.connect = watched_connect
    connection_class._execute_command = watched_execute
    for name in ("_read_query_result", "_read_ok_packet"):
        setattr(connection_class, name, watched_read(name))


def _tell(watch: Watch, copies: Copies, connection: Any, statement: str) -> None:
    is_open = bool(connection.server_status & _IN_TRANSACTION)
    if _SETS_AUTOCOMMIT.match(statement) and is_open:
        statement = "COMMIT"
    if _QUIET.match(statement) or (ends_one(statement) and not is_open):
        return
    in_transaction = is_open or not connection.server_status & _AUTOCOMMIT
    if _COMMITS_BY_ITSELF.match(statement):
        forget_writes(connection)
        in_transaction = False
    elif in_transaction:
        plain = copies.databases.mysql_plain_tables()
        in_transaction = plain.isdisjoint(map(str.lower, written_tables(statement)))
    action = tell_statement(watch, "mysql", connection, statement, in_transaction=in_transaction)
    if action == "fail":
        cut(connection._sock.fileno())
    connection._oncely_loses = action == "lose"
