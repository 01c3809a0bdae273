"""Connections of our own, which also take statements as they go over the wire.

What a driver does for any statement, to adapt its values and to find out what comes back, is most
of what a short one costs the client. Imported where psycopg is known to be there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import psycopg
from psycopg import generators, pq
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.errors import (
    DuplicatePreparedStatement,
    InvalidSqlStatementName,
    error_from_result,
)
from psycopg.pq.abc import PGconn, PGresult

from oncely.store.plan import Row, Statement, Wired
from oncely.store.postgres.liveness import WatchedConnection
from oncely.store.sql import Prepared

_DONE: Final = pq.ExecStatus.COMMAND_OK
_ROWS: Final = pq.ExecStatus.TUPLES_OK
_REFUSED: Final = pq.ExecStatus.FATAL_ERROR
_END: Final = pq.ExecStatus.PIPELINE_SYNC
_IDLE: Final = pq.TransactionStatus.IDLE
_SEVERITY: Final = pq.DiagnosticField.SEVERITY_NONLOCALIZED


class WireConnection(WatchedConnection):
    needs_begin = False
    """A statement by itself would run under another isolation than ours."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._known: set[str] = set()
        """What is prepared in this session."""
        self._rows = Transformer(self)

    def do(self, statement: Wired, prepared: Prepared) -> int:
        """How many rows it has written."""
        values = [statement.params[name] for name in prepared.names]
        formats = [type(value) is bytes for value in values]
        wired = [value.encode() if isinstance(value, str) else value for value in values]
        # What is prepared may be gone, and in a transaction to find that out would be its end.
        if self.prepare_threshold is None or self.pgconn.transaction_status != _IDLE:
            self.pgconn.send_query_params(prepared.text.encode(), wired, param_formats=formats)
            return self._finish()
        try:
            return self._do_prepared(statement.name, prepared, wired, formats)
        except InvalidSqlStatementName:
            # After a rollback psycopg may forget all that was prepared, and this with it.
            self._known.clear()
            return self._do_prepared(statement.name, prepared, wired, formats)

    def _do_prepared(
        self,
        statement: str,
        prepared: Prepared,
        wired: Sequence[bytes | None],
        formats: Sequence[int],
    ) -> int:
        self._prepare(statement, prepared)
        self.pgconn.send_query_prepared(_name(statement), wired, formats)
        return self._finish()

    @property
    def is_free(self) -> bool:
        """Whether statements can be prepared, and what goes in one message is a transaction."""
        return self.prepare_threshold is not None and self.pgconn.transaction_status == _IDLE

    def ask(self, parts: Sequence[tuple[Statement, Prepared]]) -> list[list[Row]]:
        """The rows of each. They go in one message and are done all or none, for it `is_free`."""
        try:
            return self._ask_prepared(parts)
        except InvalidSqlStatementName:
            self._known.clear()
            return self._ask_prepared(parts)

    def _ask_prepared(self, parts: Sequence[tuple[Statement, Prepared]]) -> list[list[Row]]:
        for statement, prepared in parts:
            self._prepare(statement.name, prepared)
        results = self.wait(_sent(self.pgconn, parts))
        self._check(results, len(parts))
        return [self._read(result) for result in results]

    def _check(self, results: Sequence[PGresult], expected: int) -> None:
        """PostgreSQL answers a statement before it commits it. A session that is terminated in
        between adds an error as its last result, so every result is checked."""
        for result in results:
            if result.status == _REFUSED:
                raise error_from_result(result, self.info.encoding)
        if len(results) != expected:
            raise psycopg.InternalError(f"{len(results)} results came for {expected} statements")

    def _read(self, result: PGresult) -> list[Row]:
        if result.status == _DONE:
            return []
        _expect(result, _ROWS)
        self._rows.set_pgresult(result)
        return self._rows.load_rows(0, result.ntuples, tuple)

    def _prepare(self, statement: str, prepared: Prepared) -> None:
        if statement not in self._known:
            self.pgconn.send_prepare(_name(statement), prepared.text.encode())
            # It may be there: who finds one of them gone takes all for gone.
            with suppress(DuplicatePreparedStatement):
                self._finish()
            self._known.add(statement)

    def _finish(self) -> int:
        results = self.wait(generators.execute(self.pgconn))
        self._check(results, 1)
        _expect(results[0], _DONE)
        return results[0].command_tuples or 0


def _expect(result: PGresult, status: pq.ExecStatus) -> None:
    if result.status != status:
        raise psycopg.InternalError(f"a result is {result.status}; expected {status.name}")


def _sent(pgconn: PGconn, parts: Sequence[tuple[Statement, Prepared]]) -> PQGen[list[PGresult]]:
    """The result of each: what a pipeline sends up to its end is one transaction, and what goes
    alone is one by itself."""
    if len(parts) == 1:
        _send(pgconn, *parts[0])
        alone: list[PGresult] = yield from generators.execute(pgconn)
        return alone
    pgconn.enter_pipeline_mode()
    for part in parts:
        _send(pgconn, *part)
    pgconn.pipeline_sync()
    yield from generators.send(pgconn)
    results = yield from pipeline_results(pgconn, len(parts))
    pgconn.exit_pipeline_mode()
    return results


def pipeline_results(pgconn: PGconn, statements: int) -> PQGen[list[PGresult]]:
    """The result of each statement of a pipeline, once the server has answered its end.

    The server commits at the end of the pipeline. A session that is over before that is lost:
    whether it has committed is not known here, so the connection is closed at once.
    """
    results: list[PGresult] = []
    for position in range(statements + 1):
        results += yield from generators.fetch_many(pgconn)
        if len(results) != position + 1 or _ends_session(results[-1]):
            break
    if [result.status for result in results[statements:]] == [_END]:
        return results[:-1]
    pgconn.finish()
    if results and results[-1].status == _REFUSED:
        raise error_from_result(results[-1])
    raise psycopg.OperationalError("the session was over before the end of the pipeline")


def _ends_session(result: PGresult) -> bool:
    if result.status != _REFUSED:
        return False
    # An error that libpq makes itself, of a connection that was cut, has no severity.
    return result.error_field(_SEVERITY) != b"ERROR"


def _send(pgconn: PGconn, statement: Statement, prepared: Prepared) -> None:
    values = [_wired(statement.params[name]) for name in prepared.names]
    pgconn.send_query_prepared(_name(statement.name), values)


def _wired(value: str | int | None) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return b"t" if value else b"f"
    return str(value).encode()


def _name(statement: str) -> bytes:
    return b"oncely_" + statement.encode()
