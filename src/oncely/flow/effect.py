"""The effects of a job: what one execution did, under the fence of its lease."""

from __future__ import annotations

from typing import Any

import msgspec

from oncely.flow.drive import Ask, Put, Steps
from oncely.flow.protocol import Doing, Terms
from oncely.flow.trace import effecting
from oncely.flow.writes import Begun, Writes
from oncely.model.effect import Entry, Source, check_name, described
from oncely.model.errors import InvalidInput, LeaseLost, StoreUnavailable
from oncely.store import effects
from oncely.store.claim import Fence
from oncely.store.effects import Effect, Evidence, Recorded, Renamed, Written


class Effects:
    """The effects of one execution."""

    def __init__(self, job_id: str, fence: Fence, writes: Writes) -> None:
        self._job_id = job_id
        self._fence = fence
        self._writes = writes
        self._all: dict[str, EffectDoing] = {}
        self._names: set[str] = set()
        """The names that this execution asked for, and those that the effects had before."""
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

    @property
    def renamed(self) -> Renamed | None:
        """What earlier executions have on record and this one did not ask for, although it began
        effects that are new to the job."""
        begun = [each for each in [*self._all.values()] if each.earlier and not each.cleared]
        unasked = {name for each in begun for name in each.earlier} - self._names
        if not unasked:
            return None
        return Renamed(sorted(unasked), [each.name for each in begun])

    def perform(self, terms: Terms) -> Steps[Any]:
        name = check_name(terms.name)
        if self.barred:
            raise InvalidInput(f"effect {name!r} comes {self.barred}")
        doing = self._make(terms)
        if name in self._all:
            raise InvalidInput(
                f"effect {name!r} comes twice in one execution: give each its own name, such as "
                f"'{name}:2'"
            )
        if not self._names.isdisjoint((name, *terms.was)):
            raise InvalidInput(
                f"effect {name!r} shares a name with another effect of this execution, by was=: an "
                "old name belongs to one effect"
            )
        self._all[name] = doing
        self._names.update((name, *terms.was))
        self.under_way.add(name)
        try:
            with effecting(terms.verb, name, self._job_id) as span:
                value = yield from doing.steps()
                span.tell(deduplicated=doing.was_done)
                return value
        finally:
            self.under_way.discard(name)

    def _make(self, terms: Terms) -> EffectDoing:
        return EffectDoing(self._job_id, self._fence, terms, self._writes)


class EffectDoing(Doing):
    noun = "effect {!r}"
    before = "execution"

    def __init__(self, job_id: str, fence: Fence, terms: Terms, writes: Writes) -> None:
        fingerprint, arguments = described(*terms.all_arguments())
        super().__init__(job_id, fingerprint, terms)
        self._writes = writes
        self._effect = Effect(
            job_id, fence, terms.name, terms.verb, fingerprint, arguments, terms.was
        )
        self.earlier: tuple[str, ...] = ()
        """What earlier executions of the job have on record, if this one is new to it."""

    def begin(self) -> Steps[Entry | None]:
        """Together with others; if the store is gone for a moment, by itself."""
        answer: Begun
        try:
            answer = yield Put(self._writes.begin, self._effect)
        except StoreUnavailable:
            [answer] = yield Ask(
                lambda _: effects.begin_all([self._effect], again=True), "write", patient=True
            )
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Written):
            self.earlier = answer.earlier
            answer = None
        if answer is not None:
            self.take_over(answer)
            self.refuse_other(answer)
        self.first = answer is None
        return answer

    def take_over(self, entry: Entry) -> None:
        """It goes on under the name that it is on record under."""
        if entry.old_name is not None:
            self.name = entry.old_name
            self._effect = msgspec.structs.replace(self._effect, name=entry.old_name)

    def retake(self) -> Steps[Entry | None]:
        entry: Entry | None = yield Ask(lambda _: effects.retake(self._effect), patient=True)
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
