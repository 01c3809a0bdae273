"""`Ledger`: effects that land once, outside jobs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from itertools import chain
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar, get_args

from oncely.flow.aside import aside
from oncely.flow.block import Block
from oncely.flow.drive import Ask, Steps, adrive, drive, drive_on_loop
from oncely.flow.entries import Entries, intend
from oncely.flow.protocol import OPTIONS, fence_terms, step_terms
from oncely.model import payload
from oncely.model.effect import RESULT_LIMIT_BYTES, OnDoubt, check_note
from oncely.model.effect_options import Fence, NotDoneRule, Step
from oncely.model.errors import InvalidInput
from oncely.model.keys import check_key, shown
from oncely.store.engine import StoreClosed
from oncely.store.ledger import plans
from oncely.store.ledger.books import open_books
from oncely.store.ledger.lent import Lent
from oncely.store.ledger.plans import Doubt
from oncely.store.plan import Plan
from oncely.surface.acting import user
from oncely.surface.base import carry_over_forks
from oncely.surface.closing import Closing
from oncely.worker.hold import Holder, NoHolder

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
LedgerVerb = Literal["step", "fence", "transaction"]
LEASE_SECONDS: Final = 20.0
LENT_LEASE_SECONDS: Final = 300.0
WAIT_SECONDS: Final = 30.0
_THREADS: Final = 4
_DAY_US: Final = 86_400_000_000


def faces(
    verb: Callable[Concatenate[Ledger, P], Steps[T]],
) -> tuple[
    Callable[Concatenate[Ledger, P], T],
    Callable[Concatenate[Ledger, P], Coroutine[Any, Any, T]],
]:
    """A verb in both its forms: one that blocks, and its async twin."""

    @wraps(verb)
    def called(self: Ledger, /, *args: P.args, **options: P.kwargs) -> T:
        self._refuse_if_closed()
        return drive(verb(self, *args, **options), self._engine)

    @wraps(verb)
    async def awaited(self: Ledger, /, *args: P.args, **options: P.kwargs) -> T:
        self._refuse_if_closed()
        steps = verb(self, *args, **options)
        if self._lent is not None:
            return await drive_on_loop(steps, self._lent.arun, late=None)
        return await adrive(steps, self._engine, self._executor)

    name = verb.__name__.removeprefix("_")
    called.__name__, awaited.__name__ = name, f"a{name}"
    called.__qualname__, awaited.__qualname__ = f"Ledger.{name}", f"Ledger.a{name}"
    awaited.__doc__ = f"The async twin of `{name}`."
    return called, awaited


class Ledger(Closing):
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
        self._closed = False
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
        self._refuse_if_closed()
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

    def _step(
        self,
        key: str | Step,
        function: Callable[..., Any],
        /,
        *args: Any,
        key_ttl: float | None = None,
        **kwargs: Any,
    ) -> Steps[Any]:
        """Do what may be repeated: `function(*args, **kwargs)`, until its result is recorded, then
        never again; a repeat returns the recorded result. `key_ttl` is how many seconds the other
        side remembers the key that you give it: after that a repeat is in doubt. A `Step` holds the
        key with its options."""
        return self._entries.do(step_terms(key, function, args, kwargs, key_ttl))

    step, astep = faces(_step)

    def _fence(
        self,
        key: str | Fence,
        function: Callable[..., Any],
        /,
        *args: Any,
        verify: Callable[..., Any] | None = None,
        in_doubt: OnDoubt | None = None,
        not_done: NotDoneRule | None = None,
        **kwargs: Any,
    ) -> Steps[Any]:
        """Do what must not be repeated: `function(*args, **kwargs)`, at most once.

        If a call ended in the middle of it, `verify(*args, **kwargs)` is asked: None or False means
        that it did not happen, anything else that it did, and is its result. Without `verify` the
        call raises `InDoubt` until `resolve` says what happened (`hold`, the default), or it is
        done again (`retry`), or taken for done (`assume_done`). An exception that `not_done` names
        (types of exceptions, or a function of the exception) proves that nothing happened. So does
        `NotDone`. A `Fence` holds the key with its options.
        """
        return self._entries.do(
            fence_terms(
                key,
                function,
                args,
                kwargs,
                verify=verify,
                in_doubt=in_doubt,
                not_done=not_done,
            )
        )

    fence, afence = faces(_fence)

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

        if unknown := options.keys() - OPTIONS[verb]:
            raise InvalidInput(f"the verb {verb!r} has no option {', '.join(sorted(unknown))}")

        def decorate(function: F) -> F:
            return _decorated(self, function, key, verb, tx, options)

        return decorate

    def _in_doubt(self, *, limit: int = 100) -> Steps[list[Doubt]]:
        """The entries that began and nobody knows the end of, the longest first: their calls are
        gone, and nobody came back who could find out."""
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidInput(f"limit is {shown(limit)}; expected a number from 1")
        found: list[Doubt] = yield Ask(lambda _: plans.doubts(limit), "read")
        return found

    in_doubt, ain_doubt = faces(_in_doubt)

    def _resolve(
        self,
        key: str,
        *,
        happened: bool,
        result: Any = None,
        note: str | None = None,
        by: str | None = None,
    ) -> Steps[None]:
        """Say whether an entry in doubt happened. If it did, `result` is what its function would
        have returned, and it is not done again. If not, the next call does it. Who said so, when
        and with what `note` is kept."""
        yield Ask(_answer(key, happened, result, note, by))

    resolve, aresolve = faces(_resolve)

    def _prune(self, *, older_than_days: float) -> Steps[int]:
        """Forget what was done that long ago; how many entries that were. What is forgotten will
        be done again if it comes again, so less than a day is refused. What is in doubt, or whose
        end is not known, is never forgotten."""
        age_us = round(_seconds(older_than_days, "older_than_days", at_least=1.0) * _DAY_US)
        pruned = 0
        while batch := (yield Ask(lambda _: plans.prune(age_us))):
            pruned += batch
        return pruned

    prune, aprune = faces(_prune)

    def migrate(self) -> list[str]:
        """Make the ledger's table, or bring it up to date; the names of what was applied. Safe to
        repeat, and safe from many processes at once."""
        self._refuse_if_closed()
        return self._engine.migrate()

    async def amigrate(self) -> list[str]:
        """The async twin of `migrate`."""
        self._refuse_if_closed()
        if self._lent is not None:
            return await self._lent.amigrate()
        return await aside(self._executor, self.migrate)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreClosed

    def close(self) -> None:
        self._closed = True
        self._holder.close()
        self._executor.shutdown()
        self._engine.close()


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
