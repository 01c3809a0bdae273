"""`oncely torture` strikes processes on a store of its own, and finds what is wrong afterwards."""

import os
from pathlib import Path

import msgspec
import pytest

from oncely import Oncely
from tests.surface.command import Command
from tests.surface.test_bench import around

FORGETS_WHAT_WAS_BEGUN = """
from pathlib import Path
from oncely.model.effect import Entry
from oncely.store import effects
from oncely.surface.cli.demo.gate import Gate

begin, stop = effects.begin_all, Gate.stop

def begin_all(intents, **options):
    answers = yield from begin(intents, **options)
    return [None if isinstance(answer, Entry) else answer for answer in answers]

def fail_once_mailed(self, execution_id, order, effect, after):
    stop(self, execution_id, order, effect, after)
    if (effect, after) == ("receipt", "outcome"):
        try:
            Path(__file__).with_name("failed").touch(exist_ok=False)
        except FileExistsError:
            return
        raise RuntimeError

effects.begin_all, Gate.stop = begin_all, fail_once_mailed
"""


def test_nothing_is_lost_or_doubled_and_the_jobs_that_were_there_stay(
    here: Command, url: str
) -> None:
    with Oncely(url) as app:
        app.migrate()
        mine = app.enqueue("demo.charge", {"order_id": 1}, queue="torture").job_id
    before = around(url)
    done = here("torture", "--seconds", "2.5", "--workers", "2", "--url", url, "--json")
    found = done.json()
    assert (found["violations"], found["lost"], found["doubled"]) == ([], 0, 0)
    assert found["workers_killed"] >= 2
    assert found["jobs"] == found["completed"] > 0
    assert found["acknowledged"] >= found["jobs"] - 25 * found["publishers_killed"]
    outside = found["jobs"] - found["paid_in_store"]
    assert (found["charges"], found["mails"]) == (outside, outside)
    assert around(url) == before
    with Oncely(url) as app:
        job = app.get(mine)
        assert job is not None
        assert job.state == "pending"


def test_a_ledger_that_forgets_is_found_out(
    here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted in the processes of the run only. One job fails after its mail is sent, for no fault
    need hit one there; it is run again, and the ledger must know of the mail."""
    (tmp_path / "sitecustomize.py").write_text(FORGETS_WHAT_WAS_BEGUN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    done = here("torture", "--seconds", "1", "--workers", "2", "--json")
    found = msgspec.json.decode(done.out)
    assert done.code == 1, found
    assert found["doubled"] > 0
    assert any("effects are doubled" in each for each in found["violations"])
    assert "effects are doubled" in done.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--seconds", "0"], "--seconds is 0; expected a number from 1 to 3,600"),
        (["--workers", "0"], "--workers is 0; expected a number from 1 to 64"),
        (["--url", "https://localhost"], "oncely torture works on that"),
    ],
)
def test_bad_input(here: Command, arguments: list[str], told: str) -> None:
    done = here("torture", *arguments)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
