"""Django's connections, without the rest of Django: `connection` and `connections["jobs"]`."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, ClassVar

import django
from django.conf import settings
from django.db import OperationalError, connection, connections, transaction
from psycopg.conninfo import conninfo_to_dict

from tests.engine.tx_party import Kit

NOWHERE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}

if not settings.configured:
    # No logging of Django's own: the process belongs to other tests too.
    settings.configure(DATABASES={"default": dict(NOWHERE)}, LOGGING_CONFIG=None)
    django.setup()


class Django(Kit):
    """A thread of Django has its own connections, and so has a party."""

    begins = False
    alias: ClassVar[str] = "default"
    serialization_error = OperationalError

    def open(self, **options: Any) -> None:
        where = dict(connections.settings["default"])
        if self.url.startswith("sqlite"):
            where |= {"ENGINE": "django.db.backends.sqlite3", "NAME": str(self.path)}
        else:
            parts = conninfo_to_dict(self.url)
            where |= {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": parts["dbname"],
                "USER": parts.get("user", ""),
                "PASSWORD": parts.get("password", ""),
                "HOST": parts.get("host", ""),
                "PORT": parts.get("port", ""),
            }
        self._before = connections.settings.get(self.alias, dict(NOWHERE))
        connections.settings[self.alias] = where | {"OPTIONS": options}
        self.tx = connection if self.alias == "default" else connections[self.alias]
        self.tx.ensure_connection()
        self._blocks: list[ExitStack] = []

    def open_autocommit(self) -> None:
        self.open()

    def begin(self) -> None:
        self._blocks.append(ExitStack())
        self._blocks[-1].enter_context(transaction.atomic(using=self.alias))

    def execute(self, sql: str) -> Any:
        with self.tx.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def commit(self) -> None:
        self._blocks.pop().close()

    def rollback(self) -> None:
        transaction.set_rollback(True, using=self.alias)
        self._blocks.pop().close()

    def nest(self) -> None:
        self.begin()

    def unnest(self, *, keep: bool) -> None:
        if keep:
            self.commit()
        else:
            self.rollback()

    def trace(self, hear: Callable[[str], None]) -> None:
        self.tx.connection.set_trace_callback(hear)

    def close(self) -> None:
        self.tx.close()
        connections.settings[self.alias] = self._before


class DjangoOther(Django):
    alias = "jobs"
