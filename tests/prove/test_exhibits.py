"""The well-known recipes: the prover finds by itself what the guide says of each."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from oncely.prove import Report
from tests.crash.original_scenes import COLUMNS, RECIPES
from tests.prove.exhibits import Exhibit, cells

pytest_plugins = ["tests.engine.ledger_fixtures"]


@pytest.fixture(scope="module")
def redis(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A real one where it is installed, else rows that expire."""
    if shutil.which("redis-server") is None:
        return str(tmp_path_factory.mktemp("redis") / "rows.db")
    address: str = request.getfixturevalue("redis_url")
    return address


@pytest.fixture
def exhibit(request: pytest.FixtureRequest, tmp_path: Path, redis: str) -> Iterator[Exhibit]:
    exhibit = Exhibit(request.param, tmp_path, redis)
    yield exhibit
    exhibit.close()


@pytest.mark.parametrize("exhibit", RECIPES, indirect=True)
def test_every_cell_of_the_guide_is_found(exhibit: Exhibit) -> None:
    report = exhibit.prove(max_faults=1)
    recipe = exhibit.recipe
    assert report.unobserved == []
    assert dict(zip(COLUMNS, cells(report, recipe), strict=True)) == dict(
        zip(COLUMNS, recipe.truth, strict=True)
    ), str(report)
    sound = not set(recipe.truth) & {"lost", "doubled", "unrecorded"}
    assert report.ok is sound
    assert report.not_reached == 0, report.boundaries
    if sound:
        assert "No violation in" in str(report)
    else:
        check_story(report)


def check_story(report: Report) -> None:
    """The shortest way to fail, told with the lines it went through."""
    first = report.violations[0]
    assert len(first.schedule.moves) == 1
    story = first.timeline()
    assert "originals/" in story
    assert ".py:" in story
    assert "✗" in story
    assert "ctx." in story
    assert f"schedule='{first.token}'" in str(report)


@pytest.mark.parametrize("exhibit", ["look_then_send"], indirect=True)
def test_the_originals_are_not_touched(exhibit: Exhibit) -> None:
    before = Path(exhibit.database).read_bytes()
    assert not exhibit.prove(schedule="crash@3").ok
    assert Path(exhibit.database).read_bytes() == before
    assert exhibit.app.jobs() == []
    with closing(sqlite3.connect(exhibit.database)) as db:
        assert db.execute("select * from mails").fetchall() == []


@pytest.mark.parametrize("exhibit", ["look_then_send"], indirect=True)
def test_a_successor_that_ends_beside_a_paused_one(exhibit: Exhibit) -> None:
    report = exhibit.prove(schedule="overlap@2+crash@3")
    [violation] = report.violations
    assert violation.verdict == "doubled"
    assert [lane.title for lane in violation.lanes] == [
        "delivery 1",
        "delivery 2",
        "delivery 1 goes on",
        "delivery 3",
    ]
    assert report.not_reached == 0


@pytest.mark.parametrize("exhibit", ["lock_that_expires", "fence_row"], indirect=True)
def test_an_exception_is_not_a_crash(exhibit: Exhibit) -> None:
    """`finally` and `except` run, remove the mark, and the loss is not seen."""
    clean = exhibit.prove(schedule="crash@0")
    call = next(each.number for each in clean.boundaries if each.name.startswith("POST"))
    crashed = exhibit.prove(schedule=f"crash@{call}")
    raised = exhibit.prove(schedule=f"raise@{call}")
    assert [each.verdict for each in crashed.violations] == ["lost"]
    assert raised.violations == []
    assert raised.schedules == 1
    assert raised.not_reached == 0
