"""What is shown of the ledger, what a person can do to it, and how long it is kept."""

import asyncio
from typing import Any

import pytest

from oncely import (
    Context,
    InDoubt,
    InvalidInput,
    Job,
    JobCancelled,
    Nack,
    Oncely,
    Resolution,
    Retention,
    Retry,
    WrongState,
)
from oncely.store import steer, upkeep
from tests.crash.checker import check
from tests.engine.steps import (
    claim_one,
    counts,
    end,
    found,
    let_days_pass,
    prune,
    prune_keys,
    settle,
    sql,
)

AT_ONCE = Retry(base=0, max_attempts=3)


def _boom(*_: Any) -> None:
    raise TimeoutError("no answer")


class Shop:
    """A job that charges, then sends a mail that nobody hears of again."""

    def __init__(self, app: Oncely) -> None:
        self.app = app
        self.done: list[str] = []
        self.mail: Any = _boom
        self.fails = False

        @app.job("order", retry=AT_ONCE)
        def order(ctx: Context) -> Any:
            charge = ctx.step("charge", self.charge, 49, "eur")
            if self.fails:
                raise Nack("out of stock", retryable=False)
            return [charge, ctx.fence("welcome mail", self.mail, "ann@example.org")]

    def charge(self, amount: int, currency: str) -> str:
        self.done.append(f"{amount} {currency}")
        return f"charge {len(self.done)}"

    def run(self, **options: Any) -> Job:
        job_id = self.app.enqueue("order", **options).job_id
        self.app.drain()
        return found(self.app, job_id)


@pytest.fixture
def shop(app: Oncely) -> Shop:
    return Shop(app)


def prune_effects(app: Oncely, limit: int = 100) -> bool:
    return app._engine.run(lambda _: upkeep.prune_effects(limit), "transaction")


def ledger(app: Oncely) -> tuple[int, int]:
    [row] = sql(
        app,
        "select (select count(*) from oncely.effect), (select count(*) from oncely.resolution)",
    )
    return row[0], row[1]


def test_a_job_has_its_effects(app: Oncely, shop: Shop) -> None:
    charge, mail = shop.run().effects
    assert (charge.name, charge.verb, charge.state, charge.source) == (
        "charge", "step", "done", "returned",
    )  # fmt: skip
    assert (charge.arguments, charge.result) == ('[49,"eur"]', "charge 1")
    assert charge.ended_at is not None
    assert charge.begun_at <= charge.ended_at
    assert (mail.name, mail.verb, mail.state) == ("welcome mail", "fence", "in_doubt")
    assert (mail.source, mail.ended_at, mail.result, mail.resolutions) == (None, None, None, [])
    check(app.url)


def test_what_a_person_said_is_kept_with_the_effect(app: Oncely, shop: Shop) -> None:
    job = shop.run()
    app.resolve(job.job_id, "welcome mail", happened=False, by="ann", note="no trace of it")
    assert [effect.name for effect in found(app, job.job_id).effects] == ["charge"]
    app.drain()
    app.resolve(job.job_id, "welcome mail", happened=True, result="id 7", by="bob")
    app.drain()
    job = found(app, job.job_id)
    mail = job.effects[1]
    assert (mail.state, mail.source, mail.result) == ("done", "resolved", "id 7")
    first, second = mail.resolutions
    assert first == Resolution(first.at, happened=False, by="ann", note="no trace of it")
    assert second == Resolution(second.at, happened=True, by="bob")
    assert job.result == ["charge 1", "id 7"]
    assert app.jobs(state="completed")[0].effects == job.effects
    check(app.url)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"note": "x" * 4_001}, "the note is .*at most 4,000"),
        ({"note": "a\0b"}, "without NUL"),
        ({"note": 7}, "the note is 7"),
        ({"by": ""}, "by has 0 characters"),
    ],
)
def test_words_that_cannot_be_kept(
    app: Oncely, shop: Shop, options: dict[str, Any], told: str
) -> None:
    job = shop.run()
    with pytest.raises(InvalidInput, match=told):
        app.resolve(job.job_id, "welcome mail", happened=True, **options)
    assert found(app, job.job_id) == job


def whats(app: Oncely, job: Job) -> list[str]:
    return [event.what for event in app.explain(job.job_id)]


def test_the_story_has_the_effects_in_order(app: Oncely, shop: Shop) -> None:
    job = shop.run()
    story = app.explain(job.job_id)
    assert [event.what for event in story] == [
        "enqueued", "claimed", "effect_begun", "effect_done", "effect_begun", "in_doubt",
    ]  # fmt: skip
    assert [event.effect for event in story] == [
        None, None, "charge", "charge", "welcome mail", None,
    ]  # fmt: skip
    assert story.events[3].source == "returned"
    assert "held until somebody says whether effect 'welcome mail' (begun " in story.now
    app.resolve(job.job_id, "welcome mail", happened=True, by="ann", note="seen\nin the log")
    let_days_pass(app, 0.0001)
    app.drain()
    story = app.explain(job.job_id)
    assert [(event.what, event.effect) for event in story.events[5:]] == [
        ("in_doubt", None),
        ("resolved", "welcome mail"),
        ("claimed", None),
        ("deduplicated", "charge"),
        ("deduplicated", "welcome mail"),
        ("completed", None),
    ]
    said = story.events[6]
    assert (said.happened, said.by, said.note) == (True, "ann", "seen\nin the log")
    lines = str(story).split("\n")
    assert len(lines) == len(story) + 2
    assert "effect 'welcome mail', it happened, by ann, seen in the log" in lines[7]
    assert "found done, not done again, effect 'charge'" in lines[9]
    moments = [event.at for event in story if event.at is not None]
    assert moments == sorted(moments)


def test_a_replay_keeps_the_ledger(app: Oncely, shop: Shop) -> None:
    shop.fails, shop.mail = True, lambda _: "sent"
    job = shop.run()
    assert job.state == "failed"
    shop.fails = False
    assert app.replay(job.job_id) == []
    app.drain()
    assert found(app, job.job_id).result == ["charge 1", "sent"]
    assert shop.done == ["49 eur"]


def test_a_replay_with_a_fresh_ledger_does_all_of_it_again(app: Oncely, shop: Shop) -> None:
    shop.fails, shop.mail = True, lambda _: "sent"
    job = shop.run()
    shop.fails = False
    assert asyncio.run(app.areplay(job.job_id, fresh_ledger=True)) == ["charge"]
    app.drain()
    job = found(app, job.job_id)
    assert job.result == ["charge 2", "sent"]
    assert shop.done == ["49 eur"] * 2
    [said] = job.effects[0].resolutions
    assert (said.forgotten, said.happened) == (True, True)
    assert said.by
    assert "forgotten" in whats(app, job)
    check(app.url)


def test_a_fresh_ledger_is_all_or_nothing(app: Oncely, shop: Shop) -> None:
    shop.fails = True
    job = shop.run()
    sql(app, "update oncely.effect set state = 'in_doubt', ended_at = null, source = null")
    before = counts(app), ledger(app)
    with pytest.raises(InDoubt, match="cannot be forgotten before somebody has said"):
        app.replay(job.job_id, fresh_ledger=True)
    assert (counts(app), ledger(app)) == before
    assert found(app, job.job_id).state == "failed"


def test_a_fresh_ledger_that_is_asked_for_again_after_a_lost_answer(
    app: Oncely, shop: Shop
) -> None:
    shop.fails = True
    job = shop.run()
    for again in (False, True):
        names = app._engine.run(
            lambda _, again=again: steer.replay(job.job_id, forgotten_by="ann", again=again),  # type: ignore[misc]
            "transaction",
        )
        assert names == ["charge"]
    assert ledger(app) == (0, 1)


def test_only_a_failed_job_gets_a_fresh_ledger(app: Oncely, shop: Shop) -> None:
    job = shop.run()
    with pytest.raises(WrongState):
        app.replay(job.job_id, fresh_ledger=True)
    assert ledger(app) == (2, 0)


def test_a_job_in_doubt_has_not_ended(app: Oncely, shop: Shop) -> None:
    """Its execution has."""
    job = shop.run()
    assert (job.state, job.ended_at) == ("in_doubt", None)
    assert [run.ended_at > job.created_at for run in job.executions] == [True]
    [listed] = app.jobs(state="in_doubt")
    assert (listed.job_id, listed.ended_at) == (job.job_id, None)
    app.cancel(job.job_id)
    assert found(app, job.job_id).ended_at is not None


def test_a_job_in_doubt_can_be_given_up(app: Oncely, shop: Shop) -> None:
    job = shop.run(unique_key="u")
    app.cancel(job.job_id)
    app.cancel(job.job_id)
    job = found(app, job.job_id)
    assert (job.state, job.error) == ("cancelled", None)
    assert job.effects[1].state == "in_doubt"
    assert [run.outcome for run in job.executions] == ["in_doubt"]
    assert whats(app, job)[-2:] == ["in_doubt", "cancelled"]
    assert app.drain() == 0
    with pytest.raises(JobCancelled):
        app.result(job.job_id, timeout=0)
    assert app.enqueue("order", unique_key="u").inserted
    # Whoever finds out later can still put it on record; nothing goes on for it.
    app.resolve(job.job_id, "welcome mail", happened=True, by="ann")
    job = found(app, job.job_id)
    assert (job.state, job.effects[1].state) == ("cancelled", "done")
    check(app.url)


def test_the_ledger_outlives_its_job(app: Oncely, shop: Shop) -> None:
    job = shop.run()
    app.resolve(job.job_id, "welcome mail", happened=True)
    app.drain()
    let_days_pass(app, 100)
    assert not prune_effects(app)
    assert ledger(app) == (2, 1)
    assert prune(app, days=7) == 1
    assert ledger(app) == (2, 1)
    let_days_pass(app, 29)
    prune_effects(app)
    assert ledger(app) == (2, 1)
    let_days_pass(app, 2)
    assert prune_effects(app, limit=1)
    assert ledger(app) == (1, 0)
    assert prune_effects(app, limit=1)
    assert not prune_effects(app, limit=1)
    assert ledger(app) == (0, 0)


def test_the_ledger_of_a_job_that_is_there_is_never_pruned(app: Oncely, shop: Shop) -> None:
    """Whatever made the row expire."""
    shop.run()
    moment = "now()" if app.url.startswith("postgres") else "1"
    sql(app, f"update oncely.effect set expires_at = {moment}")
    assert not prune_effects(app)
    assert ledger(app)[0] == 2
    with pytest.raises(AssertionError, match="expires, and its job is there"):
        check(app.url)


def test_a_job_in_doubt_is_never_pruned(app: Oncely, shop: Shop) -> None:
    job = shop.run()
    let_days_pass(app, 10_000)
    assert prune(app) == 0
    with pytest.raises(InvalidInput, match="jobs in state in_doubt cannot be pruned"):
        prune(app, ["in_doubt"])
    with pytest.raises(InvalidInput, match="expected 0 or more"):
        prune(app, key_days=-1)
    with pytest.raises(InvalidInput, match="key_days is -1"):
        Retention(key_days=-1)
    assert found(app, job.job_id).state == "in_doubt"


def test_evidence_of_a_job_that_is_gone_leaves_nothing_behind(app: Oncely) -> None:
    from oncely.store import effects
    from oncely.store.effects import Effect

    job_id = app.enqueue("k").job_id
    claimed = claim_one(app)
    assert end(app, claimed, "completed")
    let_days_pass(app, 8)
    assert prune(app, days=7) == 1
    late = Effect(job_id, claimed.fence, "charge", "step", "1", "[]")
    recorded = app._engine.run(lambda _: effects.done(late, "returned", "1"), "transaction")
    assert not recorded.held
    assert ledger(app) == (0, 0)
    assert prune_keys(app) == 0
    assert settle(app, claimed.fence, []) == set()


def test_the_checker_finds_doubt_without_a_hold_and_a_hold_without_doubt(
    app: Oncely, shop: Shop
) -> None:
    shop.run()
    sql(app, "update oncely.effect set state = 'begun' where name = 'welcome mail'")
    with pytest.raises(AssertionError, match="is held, and nothing of it is in doubt"):
        check(app.url)
    sql(app, "update oncely.effect set state = 'in_doubt'")
    sql(app, "update oncely.outcome set state = 'completed'")
    with pytest.raises(AssertionError, match="is in doubt, and its job is completed"):
        check(app.url)
