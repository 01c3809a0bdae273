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
from oncely.store.sql import Prepared

_ROWS: Final = pq.ExecStatus.TUPLES_OK
_REFUSED: Final = pq.ExecStatus.FATAL_ERROR
_END: Final = pq.ExecStatus.PIPELINE_SYNC
_IDLE: Final = pq.TransactionStatus.IDLE


class WireConnection(psycopg.Connection[Row]):
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
        self._check(results)
        return [self._read(result) for result in results]

    def _check(self, results: Sequence[PGresult]) -> None:
        """PostgreSQL answers a statement before it commits it. A session that is terminated in
        between adds an error as its last result, so every result is checked."""
        for result in results:
            if result.status == _REFUSED:
                raise error_from_result(result, self.info.encoding)

    def _read(self, result: PGresult) -> list[Row]:
        if result.status != _ROWS:
            return []
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
        self._check(results)
        (result,) = results
        return result.command_tuples or 0


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
    results: list[PGresult] = []
    for _ in parts:
        results += yield from generators.fetch_many(pgconn)
    end = yield from generators.fetch_many(pgconn)
    if [result.status for result in end] != [_END]:
        # The session ended after it had answered: whether it committed is not known here.
        pgconn.finish()
        for result in (*results, *end):
            if result.status == _REFUSED:
                raise error_from_result(result)
        raise psycopg.OperationalError("the connection was lost before the end of the pipeline")
    pgconn.exit_pipeline_mode()
    return results


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
