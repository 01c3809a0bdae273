"""The table of states and moves, and that the SQL of both engines says the same."""

import re
from importlib.resources import files

import pytest

from oncely.model.transition import (
    ACTIVE,
    ENDED,
    OUTCOMES,
    STATES,
    TRANSITIONS,
    State,
    states_before,
)

ENGINES = ["sqlite", "postgres"]


def source(engine: str, name: str) -> str:
    return (files("oncely.store") / engine / f"{name}.sql").read_text("utf-8")


def words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"'(\w+)'", text))


def test_the_states_are_those_of_the_contract() -> None:
    assert STATES == (
        "scheduled",
        "pending",
        "running",
        "completed",
        "failed",
        "cancelled",
        "in_doubt",
    )
    assert ACTIVE == ("scheduled", "pending", "running", "in_doubt")
    assert ENDED == ("completed", "failed", "cancelled")
    assert set(OUTCOMES) == {*ENDED, "in_doubt"}


def test_every_state_can_be_reached_from_where_jobs_begin() -> None:
    reached: set[State] = {"scheduled", "pending"}
    while True:
        further = {to for (state, _), to in TRANSITIONS.items() if state in reached} - reached
        if not further:
            break
        reached |= further
    assert reached == set(STATES)


def test_every_active_state_can_be_left_towards_an_end() -> None:
    for start in ACTIVE:
        reached: set[State] = {start}
        for _ in STATES:
            reached |= {to for (state, _), to in TRANSITIONS.items() if state in reached}
        assert reached & set(ENDED), start


def test_only_a_failed_job_comes_back() -> None:
    assert [state for state in ENDED if any(state == s for s, _ in TRANSITIONS)] == ["failed"]
    assert states_before("replay") == ("failed",)


def test_moves_lead_between_known_states() -> None:
    assert {state for state, _ in TRANSITIONS} <= set(STATES)
    assert set(TRANSITIONS.values()) <= set(STATES)
    assert states_before("claim") == ("pending",)
    assert states_before("cancel") == ("scheduled", "pending", "running", "in_doubt")


@pytest.mark.parametrize("engine", ENGINES)
def test_the_check_constraint_is_the_table(engine: str) -> None:
    [check] = re.findall(r"check \(state in \((.*?)\)\)", source(engine, "migrations/0001_jobs"))
    assert words(check) == OUTCOMES


@pytest.mark.parametrize("engine", ENGINES)
def test_settle_frees_the_unique_key_in_the_ended_states(engine: str) -> None:
    [ended] = re.findall(r"in \(('completed'.*?)\)", source(engine, "settle"))
    assert words(ended) == ENDED


@pytest.mark.parametrize("engine", ENGINES)
def test_the_standing_of_a_job_is_in_a_known_state(engine: str) -> None:
    view = source(engine, "migrations/0001_jobs").partition("standing as")[2]
    assert set(words(view)) == set(STATES) - set(OUTCOMES)
