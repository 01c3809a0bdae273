import json

from oncely import Oncely
from tests.surface.command import Command, fail


def test_cancel(at: Command, url: str) -> None:
    job_id = at("enqueue", "k", "--unique-key", "u", "--json").json()["job_id"]
    done = at("cancel", job_id)
    assert (done.code, done.out, done.err) == (0, f"cancelled job {job_id}\n", "")
    assert at("cancel", job_id, "--json").json() == {"job_id": job_id, "state": "cancelled"}
    assert at("enqueue", "k", "--unique-key", "u", "--json").json()["inserted"] is True


def test_replay(at: Command, url: str) -> None:
    with Oncely(url) as app:
        app.enqueue("k", unique_key="u")
        job_id = fail(app)
    done = at("replay", job_id)
    assert (done.code, done.out, done.err) == (0, f"replayed job {job_id}, pending\n", "")
    done = at("replay", job_id)
    assert done.code == 1
    assert done.err == (
        f"oncely: job {job_id} is pending; only jobs in state failed can be replayed\n"
    )
    with Oncely(url) as app:
        assert fail(app) == job_id
    assert at("replay", job_id, "--json").json() == {"job_id": job_id, "state": "pending"}


def test_replay_says_who_holds_the_key(at: Command, url: str) -> None:
    with Oncely(url) as app:
        app.enqueue("k", unique_key="u")
        job_id = fail(app)
        holder_id = app.enqueue("k", unique_key="u").job_id
    done = at("replay", job_id, "--json")
    assert (done.code, done.out) == (1, "")
    error = json.loads(done.err)
    assert error["error"] == "UniqueKeyTaken"
    assert holder_id in error["message"]


def test_what_cannot_be_steered(at: Command, url: str) -> None:
    with Oncely(url) as app:
        app.enqueue("k")
        job_id = fail(app)
    done = at("cancel", job_id)
    assert done.code == 1
    assert done.err.startswith(f"oncely: job {job_id} is failed; only jobs in state scheduled or")
    for verb in ("cancel", "replay"):
        done = at(verb, "nonsense")
        assert done.code == 1
        assert done.err.startswith("oncely: there is no job 'nonsense' in this store")
