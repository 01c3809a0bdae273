"""`Ledger`: effects that land once, outside jobs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from itertools import chain
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar, get_args

from oncely.flow.aside import aside
from oncely.flow.block import Block
from oncely.flow.effect import Ask, Call, Steps, adrive, drive, whole
from oncely.flow.entries import Entries, intend
from oncely.model import payload
from oncely.model.effect import RESULT_LIMIT_BYTES, OnDoubt, check_note
from oncely.model.errors import InvalidInput
from oncely.model.keys import check_key, shown
from oncely.store.engine import Access
from oncely.store.ledger import plans
from oncely.store.ledger.books import open_books
from oncely.store.ledger.lent import Lent
from oncely.store.ledger.plans import Doubt
from oncely.store.plan import Plan, arun
from oncely.surface.base import carry_over_forks
from oncely.surface.steering import user
from oncely.worker.hold import Holder, NoHolder

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
LedgerVerb = Literal["step", "fence", "transaction"]
LEASE_SECONDS: Final = 20.0
LENT_LEASE_SECONDS: Final = 300.0
WAIT_SECONDS: Final = 30.0
YOUNGEST_DAYS: Final = 1.0
_THREADS: Final = 4
_DAY_US: Final = 86_400_000_000


class Ledger:
    """What happened once, by key: in your own database, for webhooks, consumers, tasks and buttons.

    `where` is a URL (PostgreSQL, SQLite, MySQL or MariaDB through SQLAlchemy, Redis), an Engine of
    SQLAlchemy, or a connection as `tx=` takes it. On SQLite the table makes itself, elsewhere
    `migrate()` makes it. A call that finds another at work with its key waits `wait_seconds` for
    it. One that is not heard of for `lease_seconds` counts as gone.
    """

    def __init__(
        self,
        where: Any,
        *,
        wait_seconds: float = WAIT_SECONDS,
        lease_seconds: float | None = None,
    ) -> None:
        self._wait_seconds = _seconds(wait_seconds, "wait_seconds", at_least=0)
        self._engine = open_books(where)
        self._lent = self._engine if isinstance(self._engine, Lent) else None
        if lease_seconds is None:
            lease_seconds = LENT_LEASE_SECONDS if self._lent else LEASE_SECONDS
        self._lease_seconds = _seconds(lease_seconds, "lease_seconds", at_least=0.1)
        self._begin()
        carry_over_forks(self)

    def _begin(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="oncely-ledger")
        self._holder = NoHolder() if self._lent else Holder(self._engine, self._lease_seconds)
        self._entries = Entries(
            self._holder, lease_seconds=self._lease_seconds, wait_seconds=self._wait_seconds
        )

    def _begin_after_fork(self) -> None:
        self._engine.renew()
        self._begin()

    def transaction(self, key: str, *, tx: Any = None) -> Block:
        """`with` or `async with` an entry in your own open transaction: what you write inside and
        the entry are committed together, or not at all. `entry.fresh` says whether to do it;
        `entry.set_result` keeps what a repeat finds in `entry.result`."""
        return self._block(key, (), tx)

    def _block(self, key: str, args: Any, tx: Any) -> Block:
        if self._engine.library is None:
            raise InvalidInput(
                "a ledger on Redis has no transactions: what is in Redis and what is in your "
                "database cannot end together. Make a Ledger of that database, or use step or fence"
            )
        if tx is None:
            if self._lent is None:
                raise InvalidInput(
                    "ledger.transaction needs tx=, your own open transaction on this database"
                )
            tx = self._lent.connection
        return Block(self._engine, intend(key, "transaction", args), tx, self._wait_seconds)

    def step(
        self, key: str, function: Callable[..., Any], *args: Any, key_ttl: float | None = None
    ) -> Any:
        """Do what may be repeated: `function(*args)`, until its result is recorded, then never
        again; a repeat returns the recorded result. `key_ttl` is how many seconds the other side
        remembers the key that you give it: after that a repeat is in doubt."""
        return self._drive(self._entries.step(key, function, args, key_ttl=key_ttl, on_loop=False))

    async def astep(
        self, key: str, function: Callable[..., Any], *args: Any, key_ttl: float | None = None
    ) -> Any:
        """The async twin of `step`; the function may be async."""
        return await self._adrive(
            self._entries.step(key, function, args, key_ttl=key_ttl, on_loop=True)
        )

    def fence(
        self,
        key: str,
        function: Callable[..., Any],
        *args: Any,
        verify: Callable[..., Any] | None = None,
        in_doubt: OnDoubt = "hold",
        not_done: tuple[type[BaseException], ...] = (),
    ) -> Any:
        """Do what must not be repeated: `function(*args)`, at most once.

        If a call ended in the middle of it, `verify(*args)` is asked: None or False means that it
        did not happen, anything else that it did, and is its result. Without `verify` the call
        raises `InDoubt` until `resolve` says what happened (`hold`), or it is done again
        (`retry`), or taken for done (`assume_done`). An exception that is one of `not_done` proves
        that nothing happened.
        """
        return self._drive(
            self._entries.fence(
                key,
                function,
                args,
                verify=verify,
                in_doubt=in_doubt,
                not_done=not_done,
                on_loop=False,
            )
        )

    async def afence(
        self,
        key: str,
        function: Callable[..., Any],
        *args: Any,
        verify: Callable[..., Any] | None = None,
        in_doubt: OnDoubt = "hold",
        not_done: tuple[type[BaseException], ...] = (),
    ) -> Any:
        """The async twin of `fence`; the functions may be async."""
        return await self._adrive(
            self._entries.fence(
                key,
                function,
                args,
                verify=verify,
                in_doubt=in_doubt,
                not_done=not_done,
                on_loop=True,
            )
        )

    def idempotent(
        self,
        *,
        key: Callable[..., str],
        verb: LedgerVerb = "step",
        tx: Callable[..., Any] | None = None,
        **options: Any,
    ) -> Callable[[F], F]:
        """A decorator: a call of the function is done once per `key(*args, **kwargs)`, and a
        repeat returns what the first returned. `verb` says how, with that verb's options; for
        `transaction`, `tx(*args, **kwargs)` is the caller's open transaction."""
        if verb not in get_args(LedgerVerb):
            raise InvalidInput(
                f"verb is {shown(verb)}; expected {', '.join(map(repr, get_args(LedgerVerb)))}"
            )
        if not callable(key):
            raise InvalidInput(f"key is {shown(key)}; expected a function of the call's arguments")
        if (verb == "transaction") != (tx is not None):
            raise InvalidInput(
                "the verb 'transaction' needs tx=, a function that finds the open transaction in "
                "the call's arguments; no other verb takes it"
            )

        def decorate(function: F) -> F:
            return _decorated(self, function, key, verb, tx, options)

        return decorate

    def in_doubt(self, *, limit: int = 100) -> list[Doubt]:
        """The entries that began and nobody knows the end of, the longest first: their calls are
        gone, and nobody came back who could find out."""
        return self._engine.run(lambda _: plans.doubts(limit), "read")

    async def ain_doubt(self, *, limit: int = 100) -> list[Doubt]:
        """The async twin of `in_doubt`."""
        return await self._arun(lambda _: plans.doubts(limit), "read")

    def resolve(
        self,
        key: str,
        *,
        happened: bool,
        result: Any = None,
        note: str | None = None,
        by: str | None = None,
    ) -> None:
        """Say whether an entry in doubt happened. If it did, `result` is what its function would
        have returned, and it is not done again. If not, the next call does it. Who said so, when
        and with what `note` is kept."""
        self._engine.run(_answer(key, happened, result, note, by), "transaction")

    async def aresolve(
        self,
        key: str,
        *,
        happened: bool,
        result: Any = None,
        note: str | None = None,
        by: str | None = None,
    ) -> None:
        """The async twin of `resolve`."""
        await self._arun(_answer(key, happened, result, note, by), "transaction")

    def prune(self, *, older_than_days: float) -> int:
        """Forget what was done that long ago; how many entries that were. What is forgotten will
        be done again if it comes again, so less than a day is refused. What is in doubt, or whose
        end is not known, is never forgotten."""
        age_us = _age_us(older_than_days)
        pruned = 0
        while batch := self._engine.run(lambda _: plans.prune(age_us), "transaction"):
            pruned += batch
        return pruned

    async def aprune(self, *, older_than_days: float) -> int:
        """The async twin of `prune`."""
        age_us = _age_us(older_than_days)
        pruned = 0
        while batch := await self._arun(lambda _: plans.prune(age_us), "transaction"):
            pruned += batch
        return pruned

    def migrate(self) -> list[str]:
        """Make the ledger's table, or bring it up to date; the names of what was applied. Safe to
        repeat, and safe from many processes at once."""
        return self._engine.migrate()

    def close(self) -> None:
        self._holder.close()
        self._executor.shutdown()
        self._engine.close()

    async def amigrate(self) -> list[str]:
        """The async twin of `migrate`."""
        if self._lent is not None:
            return await self._lent.amigrate()
        return await asyncio.to_thread(self.migrate)

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _arun(self, make: Callable[[bool], Plan[T]], access: Access) -> T:
        if self._lent is not None:
            return await self._lent.arun(make, access)
        return await aside(self._executor, self._engine.run, make, access)

    def _drive(self, steps: Steps[Any]) -> Any:
        return drive(steps, self._engine)

    async def _adrive(self, steps: Steps[Any]) -> Any:
        if self._lent is None:
            return await adrive(steps, self._engine, self._executor)
        return await arun(steps, self._act_on_lent)

    async def _act_on_lent(self, wanted: Ask | Call) -> Any:
        assert self._lent is not None
        if isinstance(wanted, Ask):
            return await whole(self._lent.arun(wanted.make, wanted.access))
        if inspect.iscoroutinefunction(wanted.function):
            return await wanted.function(*wanted.arguments)
        value = await asyncio.to_thread(wanted.function, *wanted.arguments)
        return await value if inspect.isawaitable(value) else value


def _answer(
    key: str, happened: bool, result: Any, note: str | None, by: str | None
) -> Callable[[bool], Plan[None]]:
    check_key(key, "the key")
    if not isinstance(happened, bool):
        raise InvalidInput(f"happened is {shown(happened)}; expected True or False")
    if result is not None and not happened:
        raise InvalidInput("a result is given for an entry that did not happen")
    text = payload.encode(result, max_bytes=RESULT_LIMIT_BYTES) if happened else None
    by_whom = user() if by is None else check_key(by, "by")
    check_note(note)
    return lambda again: plans.resolve(
        key, happened=happened, result=text, by_whom=by_whom, note=note, again=again
    )


def _age_us(older_than_days: Any) -> int:
    return round(_seconds(older_than_days, "older_than_days", at_least=YOUNGEST_DAYS) * _DAY_US)


def _decorated(
    ledger: Ledger,
    function: F,
    key: Callable[..., str],
    verb: LedgerVerb,
    tx: Callable[..., Any] | None,
    options: dict[str, Any],
) -> F:
    signature = inspect.signature(function)

    def arguments(args: Any, named: Any) -> list[Any]:
        """By name, so that a call by position and one by name are the same."""
        return list(chain.from_iterable(signature.bind(*args, **named).arguments.items()))

    def options_of(args: Any, named: Any) -> dict[str, Any]:
        verify = options.get("verify")
        return options | ({"verify": lambda *_: verify(*args, **named)} if verify else {})

    @wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        name, told = key(*args, **named), arguments(args, named)
        if tx is None:
            does = ledger.fence if verb == "fence" else ledger.step
            return does(name, lambda *_: function(*args, **named), *told, **options_of(args, named))
        with ledger._block(name, told, tx(*args, **named)) as entry:
            if entry.fresh:
                entry.set_result(function(*args, **named))
        return entry.result

    @wraps(function)
    async def acalled(*args: Any, **named: Any) -> Any:
        name, told = key(*args, **named), arguments(args, named)

        async def act(*_: Any) -> Any:
            return await function(*args, **named)

        if tx is None:
            does = ledger.afence if verb == "fence" else ledger.astep
            return await does(name, act, *told, **options_of(args, named))
        async with ledger._block(name, told, tx(*args, **named)) as entry:
            if entry.fresh:
                entry.set_result(await function(*args, **named))
        return entry.result

    return acalled if inspect.iscoroutinefunction(function) else called  # type: ignore[return-value]


def _seconds(value: Any, option: str, *, at_least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= at_least:
        raise InvalidInput(f"{option} is {shown(value)}; expected {at_least:g} or more")
    return float(value)
