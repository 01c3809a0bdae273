"""What the zoo knows of a handler: the verdict it should get, why, and what it runs on."""

import importlib
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec

Expected = Literal[
    "sound", "held", "lost", "doubled", "diverged", "stuck", "unobserved", "not deterministic",
    "refused",
]  # fmt: skip
T = TypeVar("T")
BROKEN = ("lost", "doubled", "diverged", "stuck")
SUBJECTS = (
    "sqlite", "transactions", "memory", "alchemy", "postgres", "django", "redis", "http",
    "services", "mail", "files", "folders", "processes", "queues", "web", "jobs",
    "workflows",
)  # fmt: skip


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """`expected` was written before the handler was proved for the first time."""

    name: str
    target: Any
    expected: Expected
    why: str
    schema: str = ""
    """SQL for the file shop.db in the working directory."""
    postgres: str = ""
    """SQL for the database at $SHOP_DATABASE."""
    tables: tuple[str, ...] = ()
    """The tables of PostgreSQL that are compared."""
    redis: bool = False
    """Whether it uses the server at $SHOP_REDIS."""
    service: dict[str, Any] | None = None
    """Options of the `Downstream` at $SHOP_SERVICE."""
    backup: dict[str, Any] | None = None
    """Options of a second one, at $SHOP_BACKUP."""
    mail: bool = False
    """Whether it uses the `Mailbox` at $SHOP_SMTP."""
    compare: tuple[Callable[[], Any], ...] = ()
    """What is compared beside tables, services and mails."""
    prepare: Callable[[], Any] | None = None
    """Called in the working directory, before the proof."""
    args: tuple[Any, ...] = ("order-1",)
    request: str | None = None
    """Of a web app: `POST /orders`. Its payload and headers are in `options`."""
    job: bool = False
    """Whether it is a handler of an Oncely app, called with a context."""
    max_faults: int = 1
    options: dict[str, Any] = {}
    """More that is given to `prove`."""


ENTRIES: dict[str, Entry] = {}


def expect(expected: Expected, why: str, *, name: str = "", **options: Any) -> Callable[[T], T]:
    """Registers a function, a task or an app, and returns it as it is."""

    subject = sys._getframe(1).f_globals["__name__"].rpartition(".")[2]

    def register(target: T) -> T:
        full = f"{subject}.{name or getattr(target, '__name__', '')}"
        assert full not in ENTRIES, f"two entries have the name {full}"
        ENTRIES[full] = Entry(name=full, target=target, expected=expected, why=why, **options)
        return target

    return register


def load(names: list[str]) -> list[Entry]:
    """The entries whose names begin with one of these, or all. Only their modules are imported."""
    for subject in SUBJECTS:
        if not names or any(name.split(".")[0] == subject for name in names):
            importlib.import_module(f"{__package__}.{subject}")
    return [
        entry
        for entry in ENTRIES.values()
        if not names or any(entry.name.startswith(name) for name in names)
    ]
