"""Plans of the front door: take in drafts, and recognise those that were taken in before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec

from oncely.model.alike import Alike
from oncely.model.counter import Delta
from oncely.model.draft import Draft
from oncely.model.errors import KeyConflict, StoreUnavailable
from oncely.model.event import Key
from oncely.model.job import Receipt
from oncely.model.transition import State
from oncely.store.alike import Document, admitting
from oncely.store.counters import count
from oncely.store.plan import Plan, Row, Statement, document
from oncely.store.store_id import StoreId, refuse_other_store
from oncely.store.story import REPEATS

CHUNK: Final = 10_000
CHUNK_BYTES: Final = 32 * 1024 * 1024
ROUNDS: Final = 50
_RESERVED: Final = ("id", "kind", "queue", "idempotency_key", "fingerprint", "unique_key")


class Conflict(msgspec.Struct, frozen=True):
    """The draft's idempotency key belongs to `job_id`, which has other content."""

    draft: Draft
    job_id: str

    def error(self, drafts: Sequence[Draft] = ()) -> KeyConflict:
        """`drafts` are the others of a refused call: their ids were never stored."""
        stored = None if any(other.id == self.job_id for other in drafts) else self.job_id
        return KeyConflict(str(self.draft.idempotency_key), self.draft.queue, stored)


class Repeat(Receipt, frozen=True):
    """The receipt of a draft that was recognised, and by which of its keys."""

    key: Key

    def plain(self) -> Receipt:
        return Receipt(self.job_id, self.inserted, self.state)


Answer = Receipt | Conflict


def needs_transaction(drafts: Sequence[Draft]) -> bool:
    """One statement is a transaction of its own; two kinds of keys, or chunks, take more."""
    if _is_long(drafts):
        return True
    return type(drafts) is not Alike and any(d.idempotency_key and d.unique_key for d in drafts)


def needs_savepoint(drafts: Sequence[Draft]) -> bool:
    """Whether a call that ends in the middle, or in a conflict, could leave a part of itself."""
    if type(drafts) is Alike:
        return bool(drafts.keys) or needs_transaction(drafts)
    keyed = len(drafts) > 1 and any(d.idempotency_key or d.unique_key for d in drafts)
    return keyed or needs_transaction(drafts)


def admit(
    drafts: Sequence[Draft], *, again: bool = False, store: StoreId | None = None
) -> Plan[list[Answer]]:
    """Take in each draft or say which job it repeats; the answers are in the order of drafts.

    `again` says that these drafts were sent before and the answer was lost: then a job that is
    there already under the id of its draft was inserted by us. `store` is the store that they are
    for, in a transaction of the caller's, which may be on another one: then `OtherStore`.
    """
    taken: list[Row] | None = None
    is_long = _is_long(drafts)
    if drafts and not again and not is_long:
        taken = yield from _take(drafts, store, alone=True)
        if len(taken) == len(drafts):  # as usual, and then there is nothing to learn of any key
            states = _states(taken)
            ids = drafts.ids if type(drafts) is Alike else [draft.id for draft in drafts]
            return [Receipt(id, True, states[id]) for id in ids]
    answers: dict[str, Answer] = {}
    seen = _Seen()
    order = _order_of_keys(drafts) if is_long else _Order(drafts)
    for chunk in _chunks(order.reserved):
        yield document("reserve_keys", _pick({d.id: d for d in chunk}, *_RESERVED))
    for chunk in _chunks(order.drafts):
        waiting = seen.unanswered(chunk, answers)
        is_reserved = bool(order.reserved)
        yield from _admit_chunk(
            waiting,
            answers,
            seen,
            again=again,
            taken=taken,
            store=store,
            is_reserved=is_reserved,
        )
    seen.unanswered(order.repeats, answers)
    for chunk in _chunks(drafts):
        if repeats := list(_repeats(chunk, answers)):
            yield document("keep_repeats", repeats, limit=REPEATS)
            yield from count(_deltas(chunk, answers))
    return [answers[draft.id] for draft in drafts]


def admit_all(
    drafts: Sequence[Draft],
    *,
    again: bool = False,
    savepoint: bool = False,
    store: StoreId | None = None,
) -> Plan[list[Receipt]]:
    """Take in all drafts or, if one key has other content, none. `store` is as for `admit`.

    In the caller's transaction a savepoint undoes what was written; ours is rolled back.
    """
    if savepoint:
        yield Statement("savepoint")
    try:
        answers = yield from admit(drafts, again=again, store=store)
        receipts = [answer for answer in answers if isinstance(answer, Receipt)]
        if len(receipts) < len(answers):
            raise next(a for a in answers if isinstance(a, Conflict)).error(drafts)
    except GeneratorExit:
        raise
    except BaseException:
        if savepoint:
            yield from _undo()
        raise
    if savepoint:
        yield Statement("savepoint_release")
    return receipts


def _undo() -> Plan[None]:
    """An async caller may be cancelled between two statements, and commit all the same."""
    try:
        yield Statement("savepoint_undo")
    except Exception:
        # The transaction is lost, with all that is in it; the error that ended it says why.
        return


def _is_long(drafts: Sequence[Draft]) -> bool:
    """Whether it takes several chunks."""
    if len(drafts) == 1:
        return False
    texts = drafts.payloads if type(drafts) is Alike else [draft.payload for draft in drafts]
    return len(texts) > CHUNK or sum(map(len, texts)) > CHUNK_BYTES


class _Order(msgspec.Struct, frozen=True):
    """How the drafts of one call are sent."""

    drafts: Sequence[Draft]
    reserved: Sequence[Draft] = ()
    """Those whose idempotency keys are taken before anything else is sent."""
    repeats: Sequence[Draft] = ()
    """Those that are not sent: an earlier draft of the call has the same idempotency key."""


def _order_of_keys(drafts: Sequence[Draft]) -> _Order:
    """The order in which a call of several chunks takes its keys. It is the order of `admit.sql`:
    all idempotency keys, then all unique keys, both sorted; so two calls cannot deadlock. Of two
    drafts with one key the first of the call stays the first.

    A draft with both keys cannot be in both orders. If there is one, all idempotency keys are
    reserved first."""
    first: dict[tuple[str, str], Draft] = {}
    unique: list[Draft] = []
    plain: list[Draft] = []
    repeats: list[Draft] = []
    for draft in drafts:
        if draft.idempotency_key:
            if first.setdefault((draft.queue, draft.idempotency_key), draft) is not draft:
                repeats.append(draft)
        elif draft.unique_key:
            unique.append(draft)
        else:
            plain.append(draft)
    keyed = [draft for _, draft in sorted(first.items(), key=itemgetter(0))]
    both = [draft for draft in keyed if draft.unique_key]
    if both:
        plain += [draft for draft in keyed if not draft.unique_key]
    # The ids of a call rise.
    unique = sorted([*both, *unique], key=attrgetter("kind", "unique_key", "id"))
    if both:
        return _Order([*unique, *plain], keyed, repeats)
    return _Order([*keyed, *unique, *plain], (), repeats)


def _chunks(drafts: Sequence[Draft]) -> Iterator[Sequence[Draft]]:
    """As few as can be: one statement takes all its keys in order, and cannot deadlock."""
    if not drafts:
        return
    start = size = 0
    for end, draft in enumerate(drafts):
        if end - start == CHUNK or size > CHUNK_BYTES:
            yield drafts[start:end]
            start, size = end, 0
        size += len(draft.payload)
    yield drafts[start:]


def _repeats(drafts: Sequence[Draft], answers: dict[str, Answer]) -> Iterator[dict[str, Any]]:
    """Those of each job that may be kept, counted from 1."""
    counts: Counter[str] = Counter()
    for draft in drafts:
        answer = answers[draft.id]
        if isinstance(answer, Repeat):
            counts[answer.job_id] += 1
            n = counts[answer.job_id]
            if n <= REPEATS:
                yield {"id": draft.id, "job_id": answer.job_id, "key": answer.key, "n": n}


def _deltas(drafts: Sequence[Draft], answers: dict[str, Answer]) -> list[Delta]:
    kinds = Counter(draft.kind for draft in drafts if isinstance(answers[draft.id], Repeat))
    return [Delta("deduplicated", kind, "enqueue", n) for kind, n in kinds.items()]


def _admit_chunk(
    waiting: list[Draft],
    answers: dict[str, Answer],
    seen: _Seen,
    *,
    again: bool,
    taken: list[Row] | None,
    store: StoreId | None,
    is_reserved: bool,
) -> Plan[None]:
    """`taken`: the answer, if they were sent already."""
    for turn in range(ROUNDS):
        if again or turn:
            # Also in a later turn: a write for many that failed is repeated for each alone.
            found = yield document("find_jobs", [{"id": draft.id} for draft in waiting])
            seen.inserted(waiting, dict(found), answers)
            waiting = seen.unanswered(waiting, answers)
        if waiting:
            if taken is None:
                taken = yield from _take(waiting, store, is_reserved=is_reserved)
            seen.inserted(waiting, _states(taken), answers)
            taken = None
            waiting = seen.unanswered(waiting, answers)
        if waiting:
            yield from _recognise(waiting, answers, seen)
            waiting = seen.unanswered(waiting, answers)
        if not waiting:
            return
    raise StoreUnavailable(
        f"the keys of {len(waiting)} jobs changed hands {ROUNDS} times while they were enqueued; "
        "nothing is wrong with the call: repeat it"
    )


def _take(
    drafts: Sequence[Draft],
    store: StoreId | None,
    *,
    alone: bool = False,
    is_reserved: bool = False,
) -> Plan[list[Row]]:
    """`is_reserved`: their idempotency keys are in the store, which the quicker forms of the
    statement take for a repeat."""
    store_id = None if store is None else store.id
    if is_reserved:
        taken = yield Statement("admit", Document(drafts, store_id))
    else:
        taken = yield admitting(drafts, alone=alone, store=store_id)
    if store is not None and (None, None) in taken[-1:]:
        yield from refuse_other_store(store)
    return taken


def _states(taken: list[Row]) -> dict[str, State]:
    return {id: "scheduled" if later else "pending" for id, later in taken}


def _recognise(lost: list[Draft], answers: dict[str, Answer], seen: _Seen) -> Plan[None]:
    """Find whom the drafts repeat. Those without an answer afterwards are to be tried again."""
    keyed = {draft.id: draft for draft in lost if draft.idempotency_key}
    unique = {draft.id: draft for draft in lost if not draft.idempotency_key and draft.unique_key}
    if keyed:
        expired = []
        names = ("id", "kind", "queue", "idempotency_key", "unique_key")
        for id, job_id, fingerprint, state, over, held in (
            yield document("find_keys", _pick(keyed, *names))
        ):
            draft = keyed[id]
            if over:
                expired.append(draft)
            elif state is None and job_id == id:
                # Our own mark of a moment ago: the unique key was lost to somebody else.
                unique[id] = draft
            elif state is not None:
                seen.key(draft, job_id, fingerprint, state)
                seen.answer(draft, answers, by="unique" if held else "idempotency")
        if expired:
            yield document(
                "drop_expired_keys",
                _pick({d.id: d for d in expired}, "id", "queue", "idempotency_key"),
            )
    if unique:
        lent = []
        for id, job_id, state in (
            yield document("find_holders", _pick(unique, "id", "kind", "unique_key"))
        ):
            draft = unique[id]
            seen.holder(draft, job_id, state)
            answers[id] = _answer(draft, job_id, state, "unique")
            if draft.idempotency_key:
                seen.key(draft, job_id, str(draft.fingerprint), state)
                lent.append(
                    {
                        "id": id,
                        "queue": draft.queue,
                        "idempotency_key": draft.idempotency_key,
                        "holder_id": job_id,
                    }
                )
        if lent:
            yield document("lend_keys", lent)


def _answer(draft: Draft, job_id: str, state: State, key: Key) -> Receipt:
    if job_id == draft.id:
        return Receipt(job_id, True, state)
    return Repeat(job_id, False, state, key)


def _pick(drafts: dict[str, Draft], *names: str) -> list[dict[str, object]]:
    return [{name: getattr(draft, name) for name in names} for draft in drafts.values()]


class _Seen:
    """What this call has learned of its own keys, so that repeats inside it cost nothing."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str | None], tuple[str, str, State]] = {}
        self._holders: dict[tuple[str, str | None], tuple[str, State]] = {}

    def inserted(
        self, drafts: list[Draft], states: dict[str, State], answers: dict[str, Answer]
    ) -> None:
        for draft in drafts:
            state = states.get(draft.id)
            if state is None:
                continue
            answers[draft.id] = Receipt(draft.id, True, state)
            if draft.idempotency_key:
                self.key(draft, draft.id, str(draft.fingerprint), state)
            if draft.unique_key:
                # Also if it has ended since: repeats in the call came while it was new.
                self.holder(draft, draft.id, state)

    def unanswered(self, drafts: Sequence[Draft], answers: dict[str, Answer]) -> list[Draft]:
        return [d for d in drafts if d.id not in answers and not self.answer(d, answers)]

    def key(self, draft: Draft, job_id: str, fingerprint: str, state: State) -> None:
        self._keys[draft.queue, draft.idempotency_key] = (job_id, fingerprint, state)

    def holder(self, draft: Draft, job_id: str, state: State) -> None:
        self._holders[draft.kind, draft.unique_key] = (job_id, state)

    def answer(self, draft: Draft, answers: dict[str, Answer], by: Key = "idempotency") -> bool:
        """Answer the draft from what is known, if that is enough."""
        if draft.idempotency_key:
            known = self._keys.get((draft.queue, draft.idempotency_key))
            if known is None:
                return False
            job_id, fingerprint, state = known
            if fingerprint != draft.fingerprint:
                answers[draft.id] = Conflict(draft, job_id)
            else:
                answers[draft.id] = _answer(draft, job_id, state, by)
            return True
        held = self._holders.get((draft.kind, draft.unique_key)) if draft.unique_key else None
        if held is None:
            return False
        answers[draft.id] = _answer(draft, *held, "unique")
        return True
