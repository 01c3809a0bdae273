"""`tx=`: the job exists if and only if the caller commits, and no answer breaks what he began."""

import pytest

from oncely import KeyConflict, NewJob
from tests.engine.tx_party import Party
from tests.engine.tx_scene import Scene, everywhere

pytest_plugins = ["tests.engine.tx_fixtures"]


def put(scene: Scene, party: Party, job: NewJob, verb: str) -> tuple[str, bool]:
    if verb == "enqueue":
        receipt = party.enqueue(scene.app, job)
    else:
        (receipt,) = party.enqueue_many(scene.app, [job]).receipts
    return receipt.job_id, receipt.inserted


@everywhere
@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many"])
def test_commit_keeps_the_job_and_the_callers_row(scene: Scene, verb: str) -> None:
    order, job, party = scene.fresh("order"), scene.job(), scene.party()
    party.begin()
    party.order(order)
    job_id, inserted = put(scene, party, job, verb)
    assert inserted
    assert not scene.has_job(job_id), "it was committed before the caller did"
    assert not scene.has_order(order)
    party.commit()
    assert scene.has_order(order)
    stored = scene.app.get(job_id)
    assert stored is not None
    assert (stored.state, stored.payload) == ("pending", {"amount": 7})
    repeated = scene.app.enqueue(job.kind, job.payload, idempotency_key=job.idempotency_key)
    assert (repeated.job_id, repeated.inserted) == (job_id, False)


@everywhere
@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many"])
def test_rollback_leaves_neither_and_frees_the_keys(scene: Scene, verb: str) -> None:
    order, job, party = scene.fresh("order"), scene.job(), scene.party()
    party.begin()
    party.order(order)
    job_id, inserted = put(scene, party, job, verb)
    assert inserted
    party.rollback()
    assert not scene.has_order(order)
    assert not scene.has_job(job_id)
    party.begin()
    again, inserted = put(scene, party, job, verb)
    party.commit()
    assert inserted
    assert again != job_id
    assert scene.has_job(again)


@everywhere
@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many"])
@pytest.mark.parametrize("shared", ["idempotency_key", "unique_key"])
def test_a_duplicate_is_skipped_and_breaks_nothing(scene: Scene, verb: str, shared: str) -> None:
    order, later, party = scene.fresh("order"), scene.fresh("order"), scene.party()
    first = scene.job()
    second = scene.job(**{shared: getattr(first, shared)})
    job_id = scene.app.enqueue_many([first]).receipts[0].job_id
    party.begin()
    party.order(order)
    assert put(scene, party, second, verb) == (job_id, False)
    party.order(later)
    party.commit()
    assert scene.has_order(order)
    assert scene.has_order(later)


@everywhere
def test_a_repeat_inside_the_transaction_is_skipped(scene: Scene) -> None:
    job, party = scene.job(), scene.party()
    party.begin()
    first = party.enqueue(scene.app, job)
    many = party.enqueue_many(scene.app, [job, scene.job(), job])
    party.commit()
    assert (many.inserted, many.skipped) == (1, 2)
    assert [r.job_id == first.job_id for r in many.receipts] == [True, False, True]
    assert scene.has_job(many.receipts[1].job_id)


@everywhere
@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many"])
def test_a_conflict_stores_nothing_and_the_caller_goes_on(scene: Scene, verb: str) -> None:
    order, later, party = scene.fresh("order"), scene.fresh("order"), scene.party()
    first = scene.job()
    job_id = scene.app.enqueue_many([first]).receipts[0].job_id
    work = scene.fresh("work")
    other = NewJob("refund", idempotency_key=first.idempotency_key, unique_key=work)
    party.begin()
    party.order(order)
    with pytest.raises(KeyConflict) as caught:
        put(scene, party, other, verb)
    assert caught.value.job_id == job_id
    party.order(later)
    party.commit()
    assert scene.has_order(order)
    assert scene.has_order(later)
    assert scene.app.jobs(kind="refund") == []


@everywhere
def test_a_conflict_of_the_last_undoes_the_others(scene: Scene) -> None:
    kind = f"kind-{scene.fresh('x').partition(':')[2]}"
    order, party = scene.fresh("order"), scene.party()
    taken, free, work = scene.fresh("key"), scene.fresh("key"), scene.fresh("work")
    scene.app.enqueue("charge", 1, idempotency_key=taken)
    party.begin()
    party.order(order)
    with pytest.raises(KeyConflict):
        party.enqueue_many(
            scene.app,
            [
                NewJob(kind),
                NewJob(kind, idempotency_key=free),
                NewJob(kind, unique_key=work),
                NewJob(kind, idempotency_key=taken),
            ],
        )
    kept = party.enqueue(scene.app, NewJob(kind, idempotency_key=free, unique_key=work))
    assert kept.inserted, "the keys of the refused call are free"
    party.commit()
    assert scene.has_order(order)
    assert [job.job_id for job in scene.app.jobs(kind=kind)] == [kept.job_id]


@everywhere
def test_inner_rollback_removes_what_was_inside(scene: Scene) -> None:
    outer, inner, party = scene.fresh("order"), scene.fresh("order"), scene.party()
    job = scene.job()
    party.begin()
    party.order(outer)
    before = party.enqueue(scene.app, scene.job())
    party.do(party.kit.nest)
    party.order(inner)
    undone = party.enqueue(scene.app, job)
    party.do(party.kit.unnest, keep=False)
    after = party.enqueue(scene.app, job)
    party.commit()
    assert after.inserted
    assert [scene.has_job(r.job_id) for r in (before, undone, after)] == [True, False, True]
    assert (scene.has_order(outer), scene.has_order(inner)) == (True, False)


@everywhere
def test_inner_commit_is_not_a_commit(scene: Scene) -> None:
    kept, lost, party = scene.fresh("order"), scene.fresh("order"), scene.party()
    jobs = []
    for order in (kept, lost):
        party.begin()
        party.order(order)
        party.do(party.kit.nest)
        jobs.append(party.enqueue(scene.app, scene.job()))
        party.do(party.kit.unnest, keep=True)
        assert not scene.has_job(jobs[-1].job_id)
        if order == kept:
            party.commit()
        else:
            party.rollback()
    assert [scene.has_job(r.job_id) for r in jobs] == [True, False]
