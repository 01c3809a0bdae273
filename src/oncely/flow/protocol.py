"""The protocol of step and fence: intent, effect, outcome. Of jobs and of a `Ledger` alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar, Final, assert_never

import msgspec

from oncely.flow.drive import Ask, Call, Steps
from oncely.model import payload
from oncely.model.effect import (
    Entry,
    OnDoubt,
    Source,
    Verb,
    check_key_ttl,
    check_on_doubt,
    described,
    judge,
    kept,
    unpack_partial,
)
from oncely.model.effect_options import (
    Fence,
    NotDoneRule,
    Step,
    check_not_done,
    check_verify,
)
from oncely.model.errors import EffectMismatch, InDoubt, InvalidInput
from oncely.model.outcome import Cancel, Defer, Nack, NotDone
from oncely.model.proof import proves_not_done

OPTIONS: Final[dict[Verb, tuple[str, ...]]] = {
    "step": ("key_ttl",),
    "fence": ("verify", "in_doubt", "not_done"),
    "transaction": (),
}


class Terms(msgspec.Struct, frozen=True):
    """What is to be done, and what the caller declared of it."""

    verb: Verb
    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    key_ttl: float | None = None
    verify: Callable[..., Any] | None = None
    in_doubt: OnDoubt = "hold"
    not_done: NotDoneRule = ()
    was: tuple[str, ...] = ()

    def check(self, called: str) -> None:
        if not callable(self.function):
            raise InvalidInput(
                f"{called} got {self.function!r}; expected a function, and its arguments after it"
            )
        check_verify(self.verify)
        check_key_ttl(self.key_ttl)
        check_on_doubt(self.in_doubt)
        check_not_done(self.not_done)

    def all_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Also those that a partial binds."""
        return unpack_partial(self.function, self.args, self.kwargs)

    def described_before(self) -> str | None:
        """The fingerprint in records of versions that did not see what a partial binds."""
        if self.kwargs or not isinstance(self.function, partial):
            return None
        return described(self.args)[0]

    @property
    def needs_a_person(self) -> bool:
        """Whether somebody has to say what happened, if it is begun and its end is not known."""
        return self.verb == "fence" and self.verify is None and self.in_doubt == "hold"

    @property
    def says_not_done(self) -> tuple[type[Exception], ...]:
        """What the function raises to say that nothing happened."""
        return (NotDone, Defer, Nack, Cancel) if self.verb == "fence" else (NotDone,)


def step_terms(
    declared: str | Step,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    key_ttl: float | None,
) -> Terms:
    if kwargs:
        _refuse_options("step", "fence", kwargs)
    if isinstance(declared, str):
        return Terms("step", declared, function, args, kwargs, key_ttl=key_ttl)
    if not isinstance(declared, Step):
        raise InvalidInput(f"step takes the name of the effect or a Step; got {declared!r}")
    return Terms(
        "step",
        declared.name,
        function,
        args,
        kwargs,
        key_ttl=_given_once("key_ttl", declared.key_ttl, key_ttl),
        was=tuple(declared.was),
    )


def fence_terms(
    declared: str | Fence,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    verify: Callable[..., Any] | None,
    in_doubt: OnDoubt | None,
    not_done: NotDoneRule | None,
) -> Terms:
    if kwargs:
        _refuse_options("fence", "step", kwargs)
    was: tuple[str, ...] = ()
    if isinstance(declared, str):
        name = declared
    elif isinstance(declared, Fence):
        name, was = declared.name, tuple(declared.was)
        verify = _given_once("verify", declared.verify, verify)
        in_doubt = _given_once("in_doubt", declared.in_doubt, in_doubt)
        not_done = _given_once("not_done", declared.not_done, not_done)
    else:
        raise InvalidInput(f"fence takes the name of the effect or a Fence; got {declared!r}")
    return Terms(
        "fence",
        name,
        function,
        args,
        kwargs,
        verify=verify,
        in_doubt="hold" if in_doubt is None else in_doubt,
        not_done=() if not_done is None else not_done,
        was=was,
    )


def _given_once(option: str, declared: Any, called: Any) -> Any:
    if declared is not None and called is not None:
        raise InvalidInput(
            f"{option} is given in the declared effect and in the call: give it in one of them"
        )
    return declared if called is None else called


def _refuse_options(verb: Verb, other: Verb, kwargs: dict[str, Any]) -> None:
    for option in OPTIONS[other]:
        if option in kwargs:
            raise InvalidInput(
                f"{verb} has no option {option}, {other} has. If it is an argument of the "
                f"function, bind it with functools.partial(function, {option}=…)"
            )


class Doing(ABC):
    """One call of step or fence. Where it is written down, and who may go on, is for its heirs."""

    noun: ClassVar[str]
    before: ClassVar[str]
    """Who it was that began it before."""

    def __init__(self, job_id: str | None, fingerprint: str, terms: Terms) -> None:
        terms.check(self.noun.format(terms.name))
        self.job_id = job_id
        self.name = terms.name
        """The name that it is on record under."""
        self.terms = self.declared = terms
        self.fingerprint = fingerprint
        self.first = False
        """Whether nobody began it before."""
        self.cleared = False
        """Whether its intent was forgotten, because nothing happened."""
        self.was_done = False
        """Whether it was found done, and not done again."""
        self.doubt: bool | None = None
        """Whether a person must say what happened; None while there is nothing to say."""

    @abstractmethod
    def begin(self) -> Steps[Entry | None]:
        """Write down the intent; what is known already, or None if it is this call's to do."""

    @abstractmethod
    def retake(self) -> Steps[Entry | None]:
        """Do anew what was begun before. None if it is this call's to do now; if not, somebody
        knew more meanwhile."""

    @abstractmethod
    def evidence(self, source: Source, result: str | None) -> Ask:
        """That it happened. `ended` gets the answer."""

    def tell(self, source: Source, result: str | None) -> Steps[Any]:
        """Bring the evidence."""
        return (yield self.evidence(source, result))

    @abstractmethod
    def ended(self, answer: Any, source: Source, result: str | None) -> Any:
        """Its value, after the evidence is in."""

    @abstractmethod
    def nothing_happened(self) -> Ask:
        """That is known, so the intent is forgotten."""

    def hold(self) -> Steps[None]:
        """It is left for a person who says what happened."""
        yield from ()

    # Those that keep the error need it.
    def left(self, error: BaseException) -> Steps[None]:  # noqa: ARG002
        """The function failed, and nobody knows what it did before."""
        yield from ()

    def left_late(self) -> Ask | None:
        """The same, when nobody waits for it any more."""
        return None

    def steps(self) -> Steps[Any]:
        terms = self.terms
        entry: Entry | None = yield from self.begin()
        while entry is not None:
            move = judge(
                entry,
                key_ttl=terms.key_ttl,
                can_ask=terms.verify is not None,
                on_doubt=terms.in_doubt,
                verb=terms.verb,
            )
            match move:
                case "recorded":
                    self.was_done = True
                    return self.read(entry.source, entry.result)
                case "assume":
                    return (yield from self._record("assumed", None))
                case "hold":
                    self.doubt = True
                    yield from self.hold()
                    raise InDoubt(self.job_id, self.name, self._why(entry))
                case "ask":
                    assert terms.verify is not None
                    found = yield Call(terms.verify, terms.args, terms.kwargs)
                    if found is not None and found is not False:
                        return (yield from self._done(found, verified=True))
                case "again":
                    pass
                case _:
                    assert_never(move)
            entry = yield from self.retake()
        return (yield from self._do())

    def _do(self) -> Steps[Any]:
        terms = self.terms
        if terms.verb == "fence":
            self.doubt = terms.needs_a_person
        try:
            value = yield Call(terms.function, terms.args, terms.kwargs, self._told_late)
        except BaseException as error:
            if self._clears(error):
                yield self.nothing_happened()
                self.doubt = None
                self.cleared = True
            else:
                yield from self.left(error)
            raise
        return (yield from self._done(value))

    def _clears(self, error: BaseException) -> bool:
        """An error that proves that nothing happened proves it of this time only: what was begun
        before stays begun."""
        return self.first and (
            isinstance(error, self.terms.says_not_done)
            or proves_not_done(error, self.terms.not_done)
        )

    def _told_late(self, end: Future[Any]) -> Ask | None:
        error = end.exception()
        if error is None:
            return self.evidence(*kept(end.result()))
        return self.nothing_happened() if self._clears(error) else self.left_late()

    def _done(self, value: Any, *, verified: bool = False) -> Steps[Any]:
        source, result = kept(value)
        if verified and source == "returned":
            source = "verified"
        return (yield from self._record(source, result))

    def _record(self, source: Source, result: str | None) -> Steps[Any]:
        answer = yield from self.tell(source, result)
        self.doubt = None
        return self.ended(answer, source, result)

    def read(self, source: Source | None, result: str | None) -> Any:
        if source == "unkept":
            raise InvalidInput(
                f"{self.noun.format(self.name)} happened and is recorded, but what it returned is "
                "not a JSON value and cannot be kept: let its function return one"
            )
        return None if result is None else payload.decode(result)

    def refuse_other(self, entry: Entry) -> None:
        if not self.has_arguments_of(entry) or entry.verb != self.terms.verb:
            raise EffectMismatch(self.job_id, self.name)

    def has_arguments_of(self, entry: Entry) -> bool:
        if entry.fingerprint == self.fingerprint:
            return True
        return entry.fingerprint == self.declared.described_before()

    def _why(self, entry: Entry) -> str:
        if self.terms.verb == "fence":
            return f"an earlier {self.before} began it, and did not say how it ended"
        return (
            f"it was begun {entry.age_seconds:,.0f} seconds ago, and the other side remembers its "
            f"key for {self.terms.key_ttl:,.0f}: a repeat might do it twice"
        )
