"""The schema's version: checked on any connection, ours or the caller's, and brought up to date."""

from __future__ import annotations

from oncely.model.errors import SchemaError
from oncely.store.plan import Plan, Statement
from oncely.store.sql import Library, Migration


def check(library: Library) -> Plan[None]:
    """SchemaError unless the store's schema is the one that this version works with."""
    applied = yield from _applied()
    if _to_do(library, applied):
        state = "is older than this version of oncely" if applied else "is missing"
        raise SchemaError(f"the store's schema {state}: {library.remedy}")


def check_writable() -> Plan[None]:
    """StoreUnavailable if the store answers and cannot be written. Run with access `write`."""
    yield Statement("assert_writable")


def migrate(library: Library) -> Plan[list[str]]:
    """Apply what is missing and name it. In a transaction: others that come meanwhile wait."""
    yield Statement("schema_lock")
    if not (yield Statement("schema_found")):
        yield Statement("schema_create")
    applied = yield from _applied()
    if not applied:
        yield Statement("schema_begin")
    done = []
    for migration in _to_do(library, applied):
        yield Statement(f"migrations/{migration.label}")
        yield Statement(
            "schema_record",
            {
                "number": migration.number,
                "name": migration.label,
                "checksum": migration.checksum,
            },
        )
        done.append(migration.label)
    return done


def _applied() -> Plan[dict[int, str]]:
    if not (yield Statement("schema_begun")):
        return {}
    return dict((yield Statement("schema_applied")))


def _to_do(library: Library, applied: dict[int, str]) -> list[Migration]:
    known = library.migrations
    newest = known[-1].number
    if applied and max(applied) > newest:
        raise SchemaError(
            f"the store's schema is at migration {max(applied)}, newer than this version of "
            f"oncely, which knows up to {newest}: upgrade oncely on this machine"
        )
    for migration in known:
        if applied.get(migration.number, migration.checksum) != migration.checksum:
            raise SchemaError(
                f"migration {migration.label} was applied to this store in another form than this "
                "version of oncely has, so its schema cannot be trusted: use the version of oncely "
                "that made it, or start with a new file or schema"
            )
    return [migration for migration in known if migration.number not in applied]
