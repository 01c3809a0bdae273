"""The effects of a job: what one execution did, under the fence of its lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncely.flow.drive import Ask, Put, Steps
from oncely.flow.protocol import Doing, Terms
from oncely.flow.trace import effecting
from oncely.flow.writes import Begun, Writes
from oncely.model.effect import Entry, OnDoubt, Source, check_name, described
from oncely.model.errors import InvalidInput, LeaseLost, StoreUnavailable
from oncely.store import effects
from oncely.store.claim import Fence
from oncely.store.effects import Effect, Evidence, Recorded


class Effects:
    """The effects of one execution."""

    def __init__(self, job_id: str, fence: Fence, writes: Writes) -> None:
        self._job_id = job_id
        self._fence = fence
        self._writes = writes
        self._all: dict[str, EffectDoing] = {}
        self.under_way: set[str] = set()
        self.barred = ""
        """Why no effect may be begun now, if so."""

    @property
    def open(self) -> dict[str, bool]:
        """Those that it began and nobody knows the end of, each with whether a person must say."""
        return {each.name: each.doubt for each in [*self._all.values()] if each.doubt is not None}

    @property
    def repeats(self) -> list[str]:
        """Those that were found done, and not done again."""
        return [each.name for each in [*self._all.values()] if each.was_done]

    def step(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], key_ttl: float | None
    ) -> Steps[Any]:
        return self._under_way(name, Terms("step", function, args, key_ttl=key_ttl))

    def fence(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        verify: Callable[..., Any] | None,
        in_doubt: OnDoubt,
        not_done: tuple[type[BaseException], ...],
    ) -> Steps[Any]:
        terms = Terms("fence", function, args, verify=verify, in_doubt=in_doubt, not_done=not_done)
        return self._under_way(name, terms)

    def _make(self, name: str, terms: Terms) -> EffectDoing:
        return EffectDoing(self._job_id, self._fence, name, terms, self._writes)

    def _under_way(self, name: str, terms: Terms) -> Steps[Any]:
        check_name(name)
        if self.barred:
            raise InvalidInput(f"effect {name!r} comes {self.barred}")
        doing = self._make(name, terms)
        if name in self._all:
            raise InvalidInput(
                f"effect {name!r} comes twice in one execution: give each its own name, such as "
                f"'{name}:2'"
            )
        self._all[name] = doing
        self.under_way.add(name)
        try:
            with effecting(terms.verb, name, self._job_id) as span:
                value = yield from doing.steps()
                span.tell(deduplicated=doing.was_done)
                return value
        finally:
            self.under_way.discard(name)


class EffectDoing(Doing):
    noun = "effect {!r}"
    before = "execution"

    def __init__(self, job_id: str, fence: Fence, name: str, terms: Terms, writes: Writes) -> None:
        fingerprint, arguments = described(terms.args)
        super().__init__(job_id, name, fingerprint, terms)
        self._writes = writes
        self._effect = Effect(job_id, fence, name, terms.verb, fingerprint, arguments)

    def begin(self) -> Steps[Entry | None]:
        answer: Begun = yield Put(self._writes.begin, self._effect)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            self.refuse_other(answer)
        self.first = answer is None
        return answer

    def retake(self) -> Steps[Entry | None]:
        entry: Entry | None = yield Ask(lambda _: effects.retake(self._effect))
        return entry

    def evidence(self, source: Source, result: str | None) -> Ask:
        return Ask(lambda _: effects.done(self._effect, source, result), patient=True)

    def tell(self, source: Source, result: str | None) -> Steps[Recorded | None]:
        """Together with others; if the store is gone for a moment, by itself."""
        recorded: Recorded | None
        try:
            recorded = yield Put(self._writes.done, Evidence(self._effect, source, result))
        except StoreUnavailable:
            recorded = yield self.evidence(source, result)
        return recorded

    def ended(self, answer: Recorded | None, source: Source, result: str | None) -> Any:
        if answer is None:
            return self.read(source, result)
        if not answer.held:
            raise LeaseLost(self._effect.id, self._effect.fence.epoch)
        return self.read(answer.entry.source, answer.entry.result)

    def nothing_happened(self) -> Ask:
        return Ask(lambda _: effects.clear(self._effect), patient=True)
