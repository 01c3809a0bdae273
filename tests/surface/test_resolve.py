"""`oncely resolve`, and `oncely replay --fresh-ledger`."""

import re
from pathlib import Path
from shlex import split
from typing import Any

import pytest

from oncely import Context, Nack, Oncely
from tests.surface.command import Command, on_terminal

NAME = "send 'it'"


def _boom(*_: Any) -> None:
    raise TimeoutError("no answer")


@pytest.fixture
def held(at: Command, url: str) -> str:
    """A job that is held for an effect whose name needs care in a shell."""
    with Oncely(url) as app:

        @app.job("mail.send")
        def send(ctx: Context) -> Any:
            ctx.step("render", lambda: "<p>")
            return ctx.fence(NAME, _boom, "ann@example.org")

        job_id = app.enqueue("mail.send").job_id
        app.drain()
        return job_id


def _fails(ctx: Context) -> None:
    ctx.step("charge", lambda: "paid")
    raise Nack("no", retryable=False)


def test_what_show_prints_can_be_copied(at: Command, here: Command, url: str, held: str) -> None:
    said = at("show", held)
    assert said.code == 0
    lines = [line.strip() for line in said.out.splitlines()]
    commands = [line for line in lines if line.startswith("oncely resolve ")]
    assert [split(line)[4] for line in commands] == ["--happened", "--did-not-happen"]
    assert "in_doubt, fence, " in said.out
    assert re.search(r"\n  ended            not yet\n", said.out)
    assert at("show", held, "--json").json()["ended_at"] is None
    assert 'arguments ["ann@example.org"]' in said.out
    # The URL is part of it, with its password hidden; here it has none.
    done = here(*split(commands[0])[1:])
    assert (done.code, done.out) == (
        0,
        f'resolved effect "{NAME}" of job {held}, it happened; pending\n',
    )
    assert "oncely resolve" not in at("show", held).out


def test_an_answer_with_all_that_can_be_said(at: Command, url: str, held: str) -> None:
    answer = at(
        "resolve", held, NAME, "--happened", "--result", '{"id": 7}', "--note", "in the log",
        "--by", "ann", "--json",
    ).json()  # fmt: skip
    assert answer == {"job_id": held, "effect": NAME, "happened": True, "state": "pending"}
    with Oncely(url) as app:
        job = app.get(held)
        assert job is not None
        effect = job.effects[1]
    assert effect.result == {"id": 7}
    [said] = effect.resolutions
    assert (said.by, said.note, said.happened) == ("ann", "in the log", True)
    shown = at("show", held).out
    assert re.search(r"resolved +effect .*, it happened, by ann, in the log", shown)
    again = at("resolve", held, NAME, "--happened")
    assert (again.code, again.out) == (1, "")
    assert "is not in doubt; in doubt is: nothing" in again.err


def test_it_did_not_happen(at: Command, held: str) -> None:
    said = at("resolve", held, NAME, "--did-not-happen")
    assert (said.code, said.err) == (0, "")
    assert said.out == f'resolved effect "{NAME}" of job {held}, it did not happen; pending\n'


UNKNOWN = "01a1e167-7239-75cf-8141-9bcd7a8dc380"


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        ((), 2, "expected one of --happened and --did-not-happen; neither is given"),
        (("--happened", "--did-not-happen"), 2, "both are given"),
        (("--did-not-happen", "--result", "1"), 2, "--result goes with --happened"),
        (("--happened", "--result", "{"), 2, "--result is not JSON"),
        (("--happened", "--note", "x" * 5_000), 2, "at most 4,000 characters"),
        (("--happened", "--by", " "), 2, "by ' ' begins or ends with white space"),
    ],
)
def test_bad_answers(at: Command, held: str, args: tuple[str, ...], code: int, told: str) -> None:
    said = at("resolve", held, NAME, *args)
    assert (said.code, said.out) == (code, "")
    assert told in said.err
    assert said.err.count("\n") == 1


def test_what_is_not_there(at: Command, held: str) -> None:
    said = at("resolve", UNKNOWN, NAME, "--happened")
    assert (said.code, "there is no job" in said.err) == (1, True)
    said = at("resolve", held, "mail", "--happened")
    assert said.code == 1
    assert f'is not in doubt; in doubt is: "{NAME}"' in said.err


@pytest.fixture
def failed(at: Command, url: str) -> str:
    with Oncely(url) as app:
        app.job("broken")(_fails)
        job_id = app.enqueue("broken").job_id
        app.drain()
        return job_id


def test_a_fresh_ledger_must_be_meant(at: Command, failed: str) -> None:
    for args in ((), ("--json",)):
        said = at("replay", failed, "--fresh-ledger", *args)
        assert (said.code, said.out) == (2, "")
        assert "will repeat 'charge': say --yes" in said.err
    said = at("replay", failed, "--yes")
    assert (said.code, "--yes goes with --fresh-ledger" in said.err) == (2, True)
    said = at("replay", UNKNOWN, "--fresh-ledger")
    assert (said.code, "there is no job" in said.err) == (1, True)
    said = at("replay", failed, "--fresh-ledger", "--yes")
    assert said.code == 0
    assert said.out == f"replayed job {failed}, pending\nit will repeat 'charge'\n"


def test_a_fresh_ledger_for_machines(at: Command, failed: str) -> None:
    answer = at("replay", failed, "--fresh-ledger", "--yes", "--json").json()
    assert answer == {"job_id": failed, "state": "pending", "repeats": ["charge"]}


def test_on_a_terminal_one_is_asked(folder: Path) -> None:
    with Oncely(f"sqlite:///{folder}/oncely.db") as app:
        app.job("broken")(_fails)
        job_id = app.enqueue("broken").job_id
        app.drain()
        said = on_terminal("replay", job_id, "--fresh-ledger", cwd=folder, typed="n\n")
        assert "will repeat 'charge'" in said.out
        assert "nothing was changed" in said.out
        job = app.get(job_id)
        assert job is not None
        assert job.state == "failed"
        said = on_terminal("replay", job_id, "--fresh-ledger", cwd=folder, typed="y\n")
        assert "it will repeat 'charge'" in said.out
