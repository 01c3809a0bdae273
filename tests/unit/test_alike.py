"""Jobs that are alike are checked by columns: that makes the same of them as one by one does."""

from datetime import UTC, datetime
from typing import Any

import pytest

from oncely import InvalidInput, NewJob
from oncely.flow.identity import new_job_ids
from oncely.model.alike import Alike, draft_alike, found_alike
from oncely.model.draft import Draft, draft

TRACE = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
PAYLOADS: list[Any] = [
    None,
    0,
    -(2**60),
    1.0,
    "é\0\"'{}[],\\",
    "null",
    {"b": [1, {"a": None}], "a": 2},
    {"long": "x" * 200},
    [[[[]]]],
    datetime(2026, 1, 1, tzinfo=UTC),
    {3, 1, 2},
    True,
]
DEEP: Any = []
for _ in range(64):
    DEEP = [DEEP]


def one_by_one(jobs: list[NewJob], ids: list[str], **options: Any) -> list[Draft]:
    return [
        draft(job, id, queue_of=lambda kind: f"of-{kind}", max_payload_bytes=300, **options)
        for job, id in zip(jobs, ids, strict=True)
    ]


def columns(jobs: list[NewJob], ids: list[str], **options: Any) -> Alike | None:
    return draft_alike(
        jobs, ids, queue_of=lambda kind: f"of-{kind}", max_payload_bytes=300, **options
    )


@pytest.mark.parametrize("queue", ["q", None])
@pytest.mark.parametrize("key", ["{n}", "a key of é {n}", "k" * 250 + "{n}", None])
def test_the_same_drafts_are_made(queue: str | None, key: str | None) -> None:
    jobs = [
        NewJob("k", payload, queue, -7, idempotency_key=key and key.format(n=n))
        for n, payload in enumerate(PAYLOADS)
    ]
    ids = new_job_ids(len(jobs))
    drafts = one_by_one(jobs, ids, traceparent=TRACE)
    alike = columns(jobs, ids, traceparent=TRACE)
    again = found_alike(drafts)
    assert alike is not None
    assert again is not None
    for made in (alike, again):
        assert [*made] == made[:] == drafts
        assert made[-1] == drafts[-1]
        assert made.ids == ids
        assert (made.kind, made.queue, made.priority) == ("k", queue or "of-k", -7)
        assert made.payloads == [draft.payload for draft in drafts]
        assert made.keys == [draft.idempotency_key for draft in drafts if key]
        assert made.fingerprints == [draft.fingerprint for draft in drafts if key]


OPTIONS = [
    NewJob("k", 2, "q", delay=5),
    NewJob("k", 2, "q", run_at=datetime(2026, 1, 1, tzinfo=UTC)),
    NewJob("k", 2, "q", unique_key="u"),
    NewJob("k", 2, "q", group_key="g"),
    NewJob("k", 2, "q", max_attempts=3),
    NewJob("k", 2, "q", timeout=3),
    NewJob("k", 2, "q", tags=["t"]),
]


@pytest.mark.parametrize(
    "other",
    [
        NewJob("l", 2, "q"),
        NewJob("k", 2, "p"),
        NewJob("k", 2),
        NewJob("k", 2, "q", 1),
        NewJob("k", 2, "q", idempotency_key="i"),
        *OPTIONS,
    ],
)
def test_what_differs_is_not_alike(other: NewJob) -> None:
    jobs = [NewJob("k", 1, "q"), other]
    for some in (jobs, jobs[::-1]):
        assert columns(some, new_job_ids(2)) is None
        assert found_alike(one_by_one(some, new_job_ids(2))) is None


@pytest.mark.parametrize("other", OPTIONS)
def test_what_has_options_is_not_alike(other: NewJob) -> None:
    assert columns([other, other], new_job_ids(2)) is None
    assert found_alike(one_by_one([other, other], new_job_ids(2))) is None


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (NewJob("k", 1, priority=1), NewJob("k", 1, priority=True)),
        (NewJob("k", 1, delay=0), NewJob("k", 1, delay=False)),
        (NewJob("k", 1, idempotency_key="a"), NewJob("k", 1, idempotency_key=1)),  # type: ignore[arg-type]
        (NewJob("k", 1, idempotency_key="a"), NewJob("k", 1, idempotency_key="")),
        (NewJob("k", 1, idempotency_key="a"), NewJob("k", 1, idempotency_key=" a")),
        (NewJob("k", 1, idempotency_key="a"), NewJob("k", 1, idempotency_key="a\n")),
        (NewJob("k", 1, idempotency_key="a"), NewJob("k", 1, idempotency_key="a" * 256)),
        (NewJob("k", 1), NewJob("k", float("nan"))),
        (NewJob("k", 1), NewJob("k", "x" * 299)),
        (NewJob("k", 1), NewJob("k", "\ud800")),
        (NewJob("k", 1), NewJob("k", object())),
        (NewJob("k", 1), NewJob("k", DEEP)),
        (NewJob("k\n", 1), NewJob("k\n", 1)),
    ],
)
def test_what_is_wrong_is_left_to_be_found_one_by_one(right: NewJob, wrong: NewJob) -> None:
    for jobs in ([right, wrong], [wrong, right]):
        ids = new_job_ids(2)
        assert columns(jobs, ids) is None
        with pytest.raises(InvalidInput):
            one_by_one(jobs, ids)


@pytest.mark.parametrize("count", [0, 1])
def test_few_are_not_worth_it(count: int) -> None:
    assert columns([NewJob("k", 1)] * count, new_job_ids(count)) is None
