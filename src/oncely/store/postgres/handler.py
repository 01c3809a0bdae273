"""The connections that handlers write through. Imported where psycopg is known to be there.

To send and to receive is most of what a short transaction costs, so its last statement and its
commit go in one message.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Any, Final, NoReturn

import psycopg
from psycopg import generators, pq
from psycopg.abc import PQGen
from psycopg.errors import error_from_result

from oncely.model.errors import InvalidInput
from oncely.store.postgres.connecting import WATCH_CLIENT, WATCH_NETWORK
from oncely.store.postgres.liveness import AsyncWatchedConnection, WatchedConnection
from oncely.store.postgres.wire import pipeline_results
from oncely.store.sql import Prepared

_BEGIN: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED"
"""Whatever the default of the role: jobs share their leases, and under a stricter one the end of
each of them would undo the others. A handler that wants more says so in its first statement."""
_POINT: Final = b"savepoint oncely_last"
_BACK: Final = b"rollback to savepoint oncely_last"
_FORGET: Final = b"deallocate all"
"""As psycopg does it after a rollback, where it has prepared something itself."""
_NOTHING_FOUND: Final = b"22012"
"""The statement divides by the rows that it found."""
_NAME_GONE: Final = b"26000"
"""The handler has sent `deallocate all`."""
_WHO: Final = b"select pg_backend_pid()"


class _Ends:
    """The transaction is the job's: ended by the job, not by the handler."""

    is_ended = False
    """Its commit was answered."""
    may_be_ended = False
    """Its commit was sent."""
    store_error: BaseException | None = None
    """What it ended with, if that was not the handler's fault."""
    name: bytes | None = None
    """What the last statement was prepared as: such that no session of another client has it."""
    keeps_names = True
    """Behind a pooler the next transaction may run in another session."""


class JobConnection(WatchedConnection, _Ends):
    def meet(self) -> None:
        with self.lock:
            self.wait(_meet(self))

    def commit(self) -> None:
        _refuse("commit")

    def rollback(self) -> None:
        _refuse("rollback")

    def begin(self) -> None:
        self.is_ended = self.may_be_ended = False
        self.store_error = None
        with self.lock:
            self.wait(self._exec_command(_BEGIN))

    def end(self) -> None:
        self.may_be_ended = True
        super().commit()

    def give_up(self) -> None:
        super().rollback()
        if self.name is not None:
            self.name = None
            with self.lock:
                self.wait(self._exec_command(_FORGET))

    def end_with(self, last: Prepared, params: Sequence[bytes]) -> bool:
        if not _is_plain(self):
            return False
        with self.lock:
            return self.wait(end_together(self, last, params))


class AsyncJobConnection(AsyncWatchedConnection, _Ends):
    async def meet(self) -> None:
        async with self.lock:
            await self.wait(_meet(self))

    async def commit(self) -> None:
        _refuse("commit")

    async def rollback(self) -> None:
        _refuse("rollback")

    async def begin(self) -> None:
        self.is_ended = self.may_be_ended = False
        self.store_error = None
        async with self.lock:
            await self.wait(self._exec_command(_BEGIN))

    async def end(self) -> None:
        self.may_be_ended = True
        await super().commit()

    async def give_up(self) -> None:
        await super().rollback()
        if self.name is not None:
            self.name = None
            async with self.lock:
                await self.wait(self._exec_command(_FORGET))

    async def end_with(self, last: Prepared, params: Sequence[bytes]) -> bool:
        if not _is_plain(self):
            return False
        async with self.lock:
            return await self.wait(end_together(self, last, params))


def _refuse(what: str) -> NoReturn:
    raise InvalidInput(
        f"{what} inside ctx.transaction(): it commits with the job at the end of the block, and an "
        "exception rolls it back"
    )


def _meet(connection: JobConnection | AsyncJobConnection) -> PQGen[None]:
    """A pooler such as PgBouncer gives clients a process id of its own making, and settings of its
    sessions are not ours to change."""
    answer = yield from connection._exec_command(_WHO)
    who = None if answer is None else answer.get_value(0, 0)
    if who is None or int(who) != connection.info.backend_pid:
        connection.keeps_names = False
        connection.prepare_threshold = None
        return
    try:
        yield from connection._exec_command(WATCH_CLIENT)
    except psycopg.errors.InvalidParameterValue:
        yield from connection._exec_command(WATCH_NETWORK)


def _is_plain(connection: Any) -> bool:
    """In a transaction that has not failed, and with nothing under way."""
    pgconn = connection.pgconn
    return bool(
        connection.keeps_names
        and pgconn.transaction_status == pq.TransactionStatus.INTRANS
        and pgconn.pipeline_status == pq.PipelineStatus.OFF
    )


def end_together(
    connection: JobConnection | AsyncJobConnection, last: Prepared, params: Sequence[bytes]
) -> PQGen[bool]:
    """False if the statement was refused: then the transaction goes on as if nothing was sent."""
    pgconn = connection.pgconn
    name = connection.name or f"oncely_{token_hex(8)}".encode()
    connection.may_be_ended = True
    pgconn.enter_pipeline_mode()
    try:
        pgconn.send_query_params(_POINT, None)
        if connection.name is None:
            pgconn.send_prepare(name, last.text.encode())
        pgconn.send_query_prepared(name, params)
        pgconn.send_query_params(b"COMMIT", None)
        pgconn.pipeline_sync()
        yield from generators.send(pgconn)
        results = yield from pipeline_results(pgconn, 4 if connection.name is None else 3)
    finally:
        with suppress(psycopg.OperationalError):
            pgconn.exit_pipeline_mode()
    connection.name = name
    wrong = next((each for each in results if each.status == pq.ExecStatus.FATAL_ERROR), None)
    if wrong is None:
        connection.is_ended = True
        return True
    code = None if wrong is results[-1] else wrong.error_field(pq.DiagnosticField.SQLSTATE)
    if code not in (_NOTHING_FOUND, _NAME_GONE):
        raise error_from_result(wrong)
    if code == _NAME_GONE:
        connection.name = None
    yield from connection._exec_command(_BACK)
    connection.may_be_ended = False
    return False
