"""`oncely keys`, and `app.key_health`."""

import asyncio
import warnings
from uuid import uuid4

import pytest

from oncely import KeyConflict, KeyHealth, NewJob, Oncely
from tests.engine.steps import let_days_pass
from tests.surface.command import Command


@pytest.fixture
def kinds(at: Command, url: str) -> None:
    """One kind for each verdict."""
    with Oncely(url) as app, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            app.enqueue("good", 1, idempotency_key="order:1:good")
        app.enqueue("new", 1, idempotency_key="order:1:new")
        app.enqueue_many(NewJob("random", n, idempotency_key=str(uuid4())) for n in range(3))
        app.enqueue_many(NewJob("plain", n) for n in range(4))
        app.enqueue("coarse", 1, idempotency_key="user:1")
        for n in (2, 3):
            with pytest.raises(KeyConflict):
                app.enqueue("coarse", n, idempotency_key="user:1")
        # Random, but its other key recognises the work.
        app.enqueue("both", 1, idempotency_key=str(uuid4()), unique_key="order:1")


def health(url: str) -> dict[str, KeyHealth]:
    with Oncely(url) as app:
        found = app.key_health()
        assert asyncio.run(app.akey_health()) == found
    return {each.kind: each for each in found}


@pytest.mark.usefixtures("kinds")
def test_each_kind_gets_its_verdict(url: str) -> None:
    found = health(url)
    assert {kind: each.verdict for kind, each in found.items()} == {
        "coarse": "too_coarse",
        "random": "looks_random",
        "plain": "no_keys",
        "both": "no_repeat_yet",
        "good": "recognises",
        "new": "no_repeat_yet",
    }
    assert list(found)[:3] == ["coarse", "random", "plain"]
    good, coarse, random = found["good"], found["coarse"], found["random"]
    assert (good.enqueued, good.deduplicated, good.conflicts) == (1, 2, 0)
    assert (coarse.enqueued, coarse.conflicts) == (1, 2)
    assert (random.sampled, random.keyed, random.suspicious) == (3, 3, 3)
    assert random.example


@pytest.mark.usefixtures("kinds")
def test_a_key_is_judged_by_the_clock_of_its_enqueue(url: str) -> None:
    """What was a clock reading then does not become a good key by growing old."""
    with Oncely(url) as app:
        [job] = app.jobs(kind="new")
        let_days_pass(app, 30)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            app.enqueue("clock", idempotency_key=str(int(job.created_at.timestamp())))
    assert health(url)["clock"].verdict == "looks_random"


@pytest.mark.usefixtures("kinds")
def test_the_list(at: Command, url: str) -> None:
    said = at("keys")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == (
        "coarse  1 enqueued, 0 deduplicated, 2 conflicts; 1 of the newest 1 have a key"
    )
    assert "come back with other payloads" in lines[1]
    assert "(not '" in lines[3]
    assert len(lines) == 12
    answer = at("keys", "--json").json()
    assert answer[0]["kind"] == "coarse"
    assert answer[0]["verdict"] == "too_coarse"


def test_an_empty_store(at: Command) -> None:
    assert at("keys").out == "no jobs were enqueued yet\n"
    assert at("keys", "--json").json() == []
