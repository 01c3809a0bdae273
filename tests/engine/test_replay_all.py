"""Replaying many: those that match, and only those."""

import pytest

from oncely import Context, InvalidInput, Nack, NewJob, Oncely


@pytest.fixture
def failed(app: Oncely) -> Oncely:
    """250 jobs in the dead-letter queue: of two kinds, in two queues, with two errors."""
    broken = [True]

    @app.job("mail")
    async def mail(ctx: Context, n: int) -> None:
        if broken:
            raise Nack("mailbox full" if n % 2 else "no such mailbox", retryable=False)

    @app.job("sync", queue="slow")
    async def sync(ctx: Context, n: int) -> None:
        if broken:
            raise Nack("no answer", retryable=False)

    app.enqueue_many(
        [NewJob("mail", n) for n in range(210)] + [NewJob("sync", n) for n in range(40)]
    )
    assert app.drain() == 250
    broken.clear()
    return app


def test_all_are_replayed_in_the_order_of_their_age(failed: Oncely) -> None:
    told: list[int] = []
    assert failed.replay_all(progress=told.append) == 250
    assert told == [100, 200, 250]
    assert failed.jobs(state="failed") == []
    assert failed.drain() == 250
    assert len(failed.jobs(state="completed", limit=1_000)) == 250
    assert failed.replay_all() == 0


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"kind": "sync"}, 40),
        ({"queue": "slow"}, 40),
        ({"queue": "default", "kind": "sync"}, 0),
        ({"error": "mailbox"}, 210),
        ({"error": "mailbox full"}, 105),
        ({"error": "mailbox full", "limit": 7}, 7),
        ({"limit": 120}, 120),
    ],
)
def test_only_what_matches_is_replayed(
    failed: Oncely, options: dict[str, object], count: int
) -> None:
    assert failed.replay_all(**options, dry_run=True) == count  # type: ignore[arg-type]
    assert len(failed.jobs(state="failed", limit=1_000)) == 250
    assert failed.replay_all(**options) == count  # type: ignore[arg-type]
    assert len(failed.jobs(state="failed", limit=1_000)) == 250 - count
    assert len(failed.jobs(state="pending", limit=1_000)) == count


def test_a_job_whose_unique_key_is_taken_stays_and_the_others_go(app: Oncely) -> None:
    @app.job("k")
    async def handle(ctx: Context) -> None:
        raise Nack("no", retryable=False)

    first = app.enqueue("k", unique_key="one")
    app.enqueue("k")
    app.drain()
    app.enqueue("k", unique_key="one", delay=3_600)
    assert app.replay_all() == 1
    assert [job.job_id for job in app.jobs(state="failed")] == [first.job_id]


@pytest.mark.anyio
async def test_the_async_twin(app: Oncely) -> None:
    assert await app.areplay_all(dry_run=True) == 0


def test_a_bad_filter_is_refused(app: Oncely) -> None:
    with pytest.raises(InvalidInput, match="kind is"):
        app.replay_all(kind="no kind")
    for error in ("a\0b", "\ud800", "x" * 1_001, 5):
        with pytest.raises(InvalidInput, match="error is"):
            app.replay_all(error=error)  # type: ignore[arg-type]
