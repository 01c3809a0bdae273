"""Connections of our own, which also take statements as they go over the wire.

What a driver does for any statement, to adapt its values and to find out what comes back, is most
of what a short one costs the client. Imported where psycopg is known to be there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg import generators, pq
from psycopg.errors import InvalidSqlStatementName, error_from_result

from oncely.store.plan import Row, Wired
from oncely.store.sql import Prepared

_DONE: Final = pq.ExecStatus.COMMAND_OK
_IDLE: Final = pq.TransactionStatus.IDLE


class WireConnection(psycopg.Connection[Row]):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._known: set[str] = set()
        """What is prepared in this session."""

    def do(self, statement: Wired, prepared: Prepared) -> int:
        """How many rows it has written."""
        values = [statement.params[name] for name in prepared.names]
        formats = [type(value) is bytes for value in values]
        wired = [value.encode() if type(value) is str else value for value in values]
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
        name = b"oncely_" + statement.encode()
        if statement not in self._known:
            self.pgconn.send_prepare(name, prepared.text.encode())
            self._finish()
            self._known.add(statement)
        self.pgconn.send_query_prepared(name, wired, formats)
        return self._finish()

    def _finish(self) -> int:
        (result,) = self.wait(generators.execute(self.pgconn))
        if result.status != _DONE:
            raise error_from_result(result, self.info.encoding)
        return result.command_tuples or 0
