"""The job's result, and the jobs that it enqueues, are compared with their values."""

import uuid
from typing import Any

import pytest

from oncely import Context
from oncely.prove import Table, prove
from oncely.prove.job_values import varying, without
from tests.prove.test_honest import Bench, bench

__all__ = ["bench"]


def is_first(bench: Bench) -> bool:
    found = bench.count("select count(*) from notes") == 0
    bench.write("insert into notes select 'seen' where not exists (select 1 from notes)")
    return found


@pytest.mark.parametrize("options", ["payload", "queue", "unique_key", "group_key"])
def test_a_child_with_other_values_is_found(bench: Bench, options: str) -> None:
    """Enqueued once, and by the second delivery with something else."""

    def enqueue(ctx: Context) -> None:
        which = "first" if is_first(bench) else "second"
        more: dict[str, Any] = {options: {"to": which} if options == "payload" else which}
        ctx.enqueue("mail", **more)

    report = bench.prove(enqueue, schedule="crash@3")
    first = report.violations[0]
    assert first.verdict == "diverged", str(report)
    assert [each.label for each in first.differences] == ["jobs enqueued"]
    assert '"second"' in first.timeline()


def test_values_that_no_two_runs_share_are_left_out_and_named(bench: Bench) -> None:
    def enqueue(ctx: Context) -> None:
        bench.write("update accounts set cents = 0")
        with ctx.transaction() as tx:
            ctx.enqueue("mail", {"to": ["ann"], "request": str(uuid.uuid4())}, tx=tx)

    report = bench.prove(enqueue, schedule="crash@2")
    assert report.verdict == "sound", str(report)
    told = "the job mail.payload.request (two clean runs differ)"
    assert told in str(report)


def test_a_result_that_no_two_runs_share_is_left_out_and_named(bench: Bench) -> None:
    def answer(ctx: Context) -> str:
        bench.write("update accounts set cents = 0")
        return str(uuid.uuid4())

    report = bench.prove(answer, schedule="crash@2")
    assert "the result (two clean runs differ)" in str(report)
    assert (report.verdict, report.other_results) == ("sound", [])


def test_another_result_is_named_and_with_strict_no_proof(bench: Bench) -> None:
    def answer(ctx: Context) -> dict[str, Any]:
        first = is_first(bench)
        bench.write("update accounts set cents = 0")
        return {"charged": 100 if first else 0}

    report = bench.prove(answer, schedule="crash@3")
    assert (report.ok, report.verdict) == (True, "sound")
    assert 'another result: {"charged":0} instead of {"charged":100}' in str(report)
    assert "of them the job has another result" in report.sentence
    assert report.as_dict()["other_results"][0]["found"] == '{"charged":0}'
    world = [Table(bench.url, "notes"), Table(bench.url, "accounts")]
    token = str(report.other_results[0].schedule)
    report = prove(bench.app, "handler", world=world, strict=True, schedule=token)
    assert (report.ok, report.verdict) == (False, "diverged")


def test_the_same_result_is_none_of_it(bench: Bench) -> None:
    def answer(ctx: Context) -> int:
        bench.write("update accounts set cents = 0")
        return 100

    report = bench.prove(answer, schedule="crash@2")
    assert (report.verdict, report.other_results) == ("sound", [])


def test_places_that_vary() -> None:
    first = {"a": 1, "b": [{"c": 1, "d": 2}, {"c": 1, "d": 3}], "e": [1]}
    second = {"a": 2, "b": [{"c": 1, "d": 9}, {"c": 1, "d": 3}], "e": [1, 2]}
    places = set(varying(first, second))
    assert places == {("a",), ("b", "*", "d"), ("e",)}
    assert without(first, places) == {"a": "…", "b": [{"c": 1, "d": "…"}] * 2, "e": "…"}
    assert set(varying(3, 3)) == set()
    assert without(3, set(varying(3, 4))) == "…"
