"""Work through a server: the exchange of a worker. What a worker does for all, the server does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET

from oncely.model.worker import About
from oncely.store import audit, deliver, lanes, requests, swap, traffic, upkeep, workers
from oncely.store import counters as counting
from oncely.store.claim import Claimed, Fence
from oncely.store.deliver import Settlement
from oncely.store.lanes import Outlook
from oncely.store.plan import Plan
from oncely.store.remote import wire
from oncely.store.remote.carry import carries, restored
from oncely.store.remote.server import Server
from oncely.store.swap import Completed
from oncely.store.traffic import Sample

_EVERY: Final = "*"


@carries(lanes.survey)
def survey(_: Server, outlook: Outlook, queues: Sequence[str] | None) -> None:
    """The exchange finds out; here it is only said where it may look."""
    outlook.levels, outlook.wait_seconds = {}, None
    outlook.due = {_EVERY} if queues is None else set(queues)
    outlook.shared, outlook.tight = set(outlook.due), set(outlook.due)


@carries(deliver.exchange)
def exchange(
    server: Server,
    done: Sequence[Settlement],
    outlook: Outlook,
    worker: str,
    nonce: int,
    lease_seconds: float,
    limit: int,
    again: bool,
    over: Sequence[Sequence[Completed]] = (),
) -> deliver.Exchanged:
    done = [*done, *(deliver.completed(end) for lease in over for end in lease)]
    refused: set[str] = set()
    first = [*done]
    while len(first) > wire.EXCHANGE_LIMIT:
        part, first = first[: wire.EXCHANGE_LIMIT], first[wire.EXCHANGE_LIMIT :]
        refused |= {*_exchange(server, part, None, worker, nonce, lease_seconds, 0, again).refused}
    queues = None if _EVERY in outlook.due else sorted(outlook.due)
    room = min(limit, wire.EXCHANGE_LIMIT)
    told = _exchange(server, first, queues, worker, nonce, lease_seconds, room, again)
    refused |= {*told.refused}
    outlook.wait_seconds, outlook.unfinished = told.wait_seconds, told.unfinished
    return deliver.Exchanged(
        [each for each in done if _execution_id(each) in refused],
        [restored(Claimed, each) for each in told.claimed],
    )


def _exchange(
    server: Server,
    done: Sequence[Settlement],
    queues: Sequence[str] | None,
    worker: str,
    nonce: int,
    lease_seconds: float,
    limit: int,
    again: bool,
) -> wire.Exchanged:
    body = wire.Exchange(
        worker_id=worker,
        lease_seconds=lease_seconds,
        nonce=nonce,
        done=[_end(each) for each in done],
        limit=limit,
        queues=None if queues is None else list(queues),
        again=again,
    )
    return msgspec.json.decode(server.post("/v1/worker/exchange", body), type=wire.Exchanged)


def _execution_id(one: Settlement) -> str:
    return f"{one.id}.{one.epoch}.{one.nonce:x}"


def _end(one: Settlement) -> wire.EndSent:
    error, renamed = one.error, one.renamed
    return wire.EndSent(
        execution_id=_execution_id(one),
        attempt=one.attempt,
        state=one.state,  # type: ignore[arg-type]
        outcome=one.outcome,
        attempts=one.attempts,
        crashes=one.crashes,
        defers=one.defers,
        hand_backs=one.hand_backs,
        delay_seconds=one.delay_us / 1_000_000,
        result=None if one.result is None else msgspec.Raw(one.result.encode()),
        error=None if error is None else msgspec.json.decode(error, type=wire.FailureSent),
        doubts=one.doubts,
        repeats=one.repeats,
        renamed=UNSET if renamed is None else wire.RenamedSent(renamed.names, renamed.begun),
    )


@carries(deliver.renew)
def renew(
    server: Server, worker: str, known: Iterable[Fence], lease_seconds: float
) -> set[tuple[Fence, str]]:
    leases = [wire.LeaseSent(each.epoch, each.nonce) for each in known]
    held: list[wire.Held] = []
    for first in range(0, len(leases), wire.EXCHANGE_LIMIT):
        part = leases[first : first + wire.EXCHANGE_LIMIT]
        body = server.post("/v1/worker/renew", wire.Renew(worker, lease_seconds, part))
        held += msgspec.json.decode(body, type=wire.Renewed).held
    return {(Fence(each.epoch, each.nonce), each.id) for each in held}


@carries(workers.report)
def report(
    server: Server, name: str, me: About | None, running: int, samples: Sequence[Sample]
) -> int:
    if me is None:
        leave(server, name, samples)
    else:
        server.post("/v1/worker/report", _report(name, samples, me=me, running=running))
    return 0


@carries(workers.leave)
def leave(server: Server, name: str, samples: Sequence[Sample]) -> None:
    server.post("/v1/worker/report", _report(name, samples, leaves=True))


def _report(name: str, samples: Sequence[Sample], **told: Any) -> wire.Report:
    me: About = told.pop("me", About(name))
    fields = {key: value for key, value in msgspec.structs.asdict(me).items() if key != "name"}
    del fields["pushes"]
    sent = [wire.SampleSent(**msgspec.structs.asdict(each)) for each in samples]
    return wire.Report(worker_id=name, samples=sent, **fields, **told)


def _answer(plan: Callable[..., Plan[Any]], make: Callable[[], Any]) -> None:
    carries(plan)(lambda _: make())


# The exchange that follows settles whole leases too.
_answer(swap.swap, lambda: swap.Swapped(set(), []))
# The server sees to these by itself.
_answer(deliver.reclaim, list)
_answer(deliver.next_expiry, lambda: None)
_answer(upkeep.prune_jobs, lambda: upkeep.Pruned(0, None))
_answer(upkeep.prune_keys, int)
_answer(upkeep.prune_effects, bool)
_answer(requests.prune, int)
_answer(counting.fold, int)
_answer(counting.count, lambda: None)
_answer(traffic.prune, lambda: None)
_answer(workers.forget, lambda: None)
_answer(audit.prune, int)
