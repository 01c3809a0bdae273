"""Reports for CI: each is valid by the rules of who reads it."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from oncely.prove import Report, Table, prove
from oncely.prove.formats import as_github, as_json, as_junit, as_sarif
from oncely.prove.page import page


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    """One that doubles, with characters that a format has to escape, and one that holds."""
    file = tmp_path_factory.mktemp("formats") / "shop.db"
    with closing(sqlite3.connect(file)) as db:
        db.execute("create table charges (id text)")
        db.execute("create table paid (id text primary key)")

    def charge(table: str, order: str) -> None:
        with closing(sqlite3.connect(file)) as db:
            db.execute(f"insert or ignore into {table} values (?)", (order,))
            db.commit()

    return [
        prove(
            charge, args=[table, "<a> & 100%\x01,\n"], max_faults=1, budget_seconds=float("inf"),
            world=[Table(f"sqlite:///{file}", table)],
        )
        for table in ("charges", "paid")
    ]  # fmt: skip


def test_the_stories_with_one_cause_are_told_once(reports: list[Report]) -> None:
    doubled = reports[0]
    assert [len(group) for group in doubled.groups()] == [len(doubled.violations)]
    told = str(doubled)
    assert told.count("play it again") == 1
    others = " ".join(each.token for each in doubled.violations[1:])
    assert f"and {len(doubled.violations) - 1} more schedules like it: {others}" in told
    assert "\n     0 claim" in told
    assert "✗ the process ends before: settle" in told
    assert "unique key made from the arguments" in doubled.violations[0].advice
    assert "ctx." not in told  # a function has none


def test_annotations_of_github(reports: list[Report]) -> None:
    lines = as_github(reports).splitlines()
    [error] = [line for line in lines if line.startswith("::error ")]
    options, _, message = error.removeprefix("::error ").partition("::")
    given = dict(option.split("=", 1) for option in options.split(","))
    assert given["file"].endswith("test_formats.py")
    assert int(given["line"]) > 1
    assert given["title"] == "charge%3A doubled"
    assert message.startswith("charge is doubled if the process ends at 4")
    assert lines[-1].startswith("charge: sound. No violation in ")


def test_sarif(reports: list[Report]) -> None:
    log = json.loads(as_sarif(reports))
    assert log["version"] == "2.1.0"
    [run] = log["runs"]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    [result] = run["results"]
    assert result["ruleId"] in rules
    assert result["ruleId"] == "oncely/doubled"
    assert result["baselineState"] == "new"
    [location] = result["locations"]
    assert location["physicalLocation"]["region"]["startLine"] > 1
    assert list(unknown(log, SARIF)) == []


SARIF: dict[str, Any] = {
    "$schema": str,
    "version": str,
    "runs": [
        {
            "tool": {
                "driver": {
                    "name": str,
                    "version": str,
                    "rules": [{"id": str, "shortDescription": {"text": str}}],
                }
            },
            "results": [
                {
                    "ruleId": str,
                    "level": str,
                    "message": {"text": str},
                    "baselineState": str,
                    "locations": [
                        {
                            "physicalLocation": {
                                "artifactLocation": {"uri": str},
                                "region": {"startLine": int},
                            }
                        }
                    ],
                }
            ],
        }
    ],
}
"""The properties of section 3 of the standard that are used, with their types."""


def unknown(value: Any, shape: Any, place: str = "") -> Iterator[str]:
    if isinstance(shape, dict):
        yield from (f"{place}.{name}" for name in value.keys() ^ shape.keys())
        for name in value.keys() & shape.keys():
            yield from unknown(value[name], shape[name], f"{place}.{name}")
    elif isinstance(shape, list):
        for each in value:
            yield from unknown(each, shape[0], f"{place}[]")
    elif not isinstance(value, shape):
        yield place


def test_junit(reports: list[Report]) -> None:
    root = ElementTree.fromstring(as_junit(reports))
    assert root.tag == "testsuites"
    [suite] = root
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    broken, sound = suite
    [failure] = broken
    assert (broken.get("name"), failure.tag, failure.get("type")) == (
        "charge",
        "failure",
        "doubled",
    )
    assert "<a> & 100%" in str(failure.text)
    assert [child.tag for child in sound] == ["system-out"]


def test_json_of_one_and_of_many(reports: list[Report]) -> None:
    assert json.loads(as_json(reports[:1], is_list=False))["verdict"] == "doubled"
    many = json.loads(as_json(reports, is_list=True))
    assert many["ok"] is False
    assert [each["verdict"] for each in many["reports"]] == ["doubled", "sound"]


def test_a_page_of_many(reports: list[Report], tmp_path: Path) -> None:
    text = page(reports)
    assert text.count("<h1>") == 2
    assert text.count("<svg") == 1
    assert "more schedules like it" in text
