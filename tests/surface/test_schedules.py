"""`oncely schedules`."""

from datetime import datetime

import pytest

from oncely import Oncely
from tests.engine.steps import let_days_pass
from tests.surface.command import Command


@pytest.fixture
def declared(url: str) -> None:
    """A store that knows of one schedule."""
    with Oncely(url) as app:
        app.migrate()
        app.schedule("digest", cron="0 9 * * *", timezone="Europe/Berlin", payload={"to": "all"})
        app.schedules()


def test_no_schedules(at: Command) -> None:
    assert at("schedules").out == "no schedules\n"
    assert at("schedules", "--json").json() == []


def test_the_list_shows_when_each_comes_next(at: Command, declared: None) -> None:
    title, job, following, last = at("schedules").out.splitlines()
    assert title == "digest  0 9 * * *  Europe/Berlin"
    assert job == "    job   digest in default"
    assert following.startswith("    next  20")
    assert last == "    last  none yet"
    [schedule] = at("schedules", "--json").json()
    assert schedule["payload"] == {"to": "all"}
    assert (schedule["declared"], schedule["paused"]) == (True, False)
    assert datetime.fromisoformat(schedule["next_at"]).tzinfo is not None


def test_the_list_says_if_nobody_fires_it(at: Command, declared: None, url: str) -> None:
    with Oncely(url) as app:
        let_days_pass(app, 1)
    assert at("schedules").out.endswith("no worker that declares it runs: nobody fires it\n")


def test_pause_and_resume(at: Command, declared: None) -> None:
    assert at("schedules", "--pause", "digest").out == "paused schedule digest\n"
    assert "    next  paused\n" in at("schedules").out
    answered = at("schedules", "--resume", "digest", "--json").json()
    assert answered == {"schedule": "digest", "done": "resumed"}
    assert "paused" not in at("schedules").out


def test_fire_enqueues_a_job_now(at: Command, declared: None) -> None:
    said = at("schedules", "--fire", "digest").out
    [job] = at("jobs", "--json").json()
    assert said == f"fired schedule digest: job {job['job_id']}, pending\n"
    assert (job["kind"], job["payload"]) == ("digest", {"to": "all"})


def test_fires_with_one_key_are_one_job(at: Command, declared: None) -> None:
    fire = ("schedules", "--fire", "digest", "--idempotency-key", "deploy:7")
    first = at(*fire, "--json").json()
    assert at(*fire).out == f"deduplicated: job {first['job_id']} already there, pending\n"
    assert len(at("jobs", "--json").json()) == 1


def test_remove_forgets_what_no_worker_declares(at: Command, declared: None, url: str) -> None:
    refused = at("schedules", "--remove", "digest")
    assert refused.code == 1
    assert "take it out of the code first" in refused.err
    with Oncely(url) as app:
        let_days_pass(app, 1)
    assert at("schedules", "--remove", "digest").out == "removed schedule digest\n"
    assert at("schedules").out == "no schedules\n"


@pytest.mark.parametrize("verb", ["--pause", "--resume", "--fire", "--remove"])
def test_one_that_is_not_there(at: Command, verb: str) -> None:
    done = at("schedules", verb, "nope")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("oncely: there is no schedule 'nope' in this store")
    assert at("schedules", verb, "no@pe").code == 2


def test_bad_input(at: Command, declared: None) -> None:
    both = at("schedules", "--pause", "digest", "--fire", "digest")
    assert (both.code, both.err) == (
        2,
        "oncely: --pause and --fire are given; expected one of them\n",
    )
    assert at("schedules", "--idempotency-key", "k").code == 2
    assert at("schedules", "--fire", "digest", "--idempotency-key", " ").code == 2
    assert at("jobs", "--json").json() == []
