"""`oncely requests`."""

import pytest

from oncely import Oncely
from oncely.store.requests import Mark, begin
from tests.surface.command import Command

KEY = "order 1"


@pytest.fixture
def doubted(at: Command, url: str) -> str:
    """A request of each of two callers, whose server is gone."""
    with Oncely(url) as app:
        for caller in ("ann", "bob"):
            mark = Mark(caller, KEY, 1, 0, 86_400_000_000)
            app._engine.run(
                lambda _, mark=mark: begin(mark, "f", run_unknown=False, again=False),  # type: ignore[misc]
                "write",
            )
    return KEY


def test_those_in_doubt_are_listed(at: Command, doubted: str) -> None:
    said = at("requests")
    assert said.code == 0
    assert said.out.count(KEY) == 2
    assert "    caller     ann\n" in said.out
    found = at("requests", "--json").json()
    assert [(each["caller"], each["key"]) for each in found] == [("ann", doubted), ("bob", doubted)]


def test_an_answer_for_each(at: Command, url: str, doubted: str) -> None:
    answer = ("requests", "--resolve", doubted)
    assert "caller" in at(*answer, "--did-not-happen").err
    said = at(*answer, "--did-not-happen", "--caller", "bob")
    assert (said.code, said.out) == (
        0,
        "resolved request 'order 1', it did not: a repeat runs\n",
    )
    done = at(*answer, "--happened", "--status", "201", "--body", '{"charge": 7}', "--json")
    assert done.json() == {"key": doubted, "happened": True}
    assert at("requests").out == "no requests in doubt\n"
    again = at(*answer, "--did-not-happen")
    assert (again.code, again.out) == (1, "")
    assert "in doubt is: none" in again.err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--happened"], "expected --resolve"),
        (["--status", "200"], "expected --resolve"),
        (["--resolve", KEY], "neither is given"),
        (["--resolve", KEY, "--happened", "--did-not-happen"], "both are given"),
        (["--resolve", KEY, "--happened"], "status is None"),
        (["--resolve", KEY, "--happened", "--status", "200", "--body", "{"], "--body is not JSON"),
        (["--resolve", KEY, "--did-not-happen", "--status", "200"], "did not happen"),
        (["--resolve", "", "--did-not-happen"], "the key"),
    ],
)
def test_bad_input_is_one_line(at: Command, doubted: str, options: list[str], told: str) -> None:
    said = at("requests", *options)
    assert (said.code, said.out) == (2, "")
    assert told in said.err
    assert said.err.count("\n") == 1
    assert len(at("requests", "--json").json()) == 2
