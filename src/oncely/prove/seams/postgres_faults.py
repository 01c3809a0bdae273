"""PostgreSQL, where the connection is lost: its socket is shut, and the driver says so.
The server rolls back what was not committed."""

from __future__ import annotations

import os
import socket
from collections.abc import Coroutine, Generator
from typing import Any

from oncely.prove.watch import Action


def cut(descriptor: int) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as line:
        line.shutdown(socket.SHUT_RDWR)


def asocket(connection: Any) -> int:
    """The descriptor of a connection of asyncpg."""
    return int(connection._transport.get_extra_info("socket").fileno())


def with_fault(
    action: Action | None, connection: Any, command: Generator[Any, Any, Any]
) -> Generator[Any, Any, Any]:
    """What psycopg does for a command, with the connection lost before it or after it."""
    if action == "fail":
        cut(connection.pgconn.socket)
    value = yield from command
    if action == "lose":
        cut(connection.pgconn.socket)
        yield from connection._exec_command(b"select 1")  # it raises
    return value


async def awith_fault(
    action: Action | None, connection: Any, command: Coroutine[Any, Any, Any]
) -> Any:
    """The same for asyncpg."""
    if action == "fail":
        cut(asocket(connection))
    value = await command
    if action == "lose":
        cut(asocket(connection))
        await connection.execute("select 1")  # it raises
    return value
