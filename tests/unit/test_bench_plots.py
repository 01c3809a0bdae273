"""The figures of the performance page come from the files of the runs, and from nowhere else."""

import xml.etree.ElementTree as ET

from bench.plots import MARKS, bars, curves, figure, filled, sections, table

RESULTS = """# Results

## Goals

| measure | goal |
| --- | --- |
| drain | 1.3 |

## Jobs per second

Medians.

| system | one by one | latency idle, p50 / p99 ms |
| --- | --- | --- |
| **Oncely** | 1,234 (1,100–1,300) | 1.2 / 3.4 |
| Celery | 2,000 | 4.0 / 9.1 |
| RQ | failed | – |
"""  # noqa: RUF001


def test_a_cell_is_a_figure_with_its_spread_or_none() -> None:
    assert figure("1,234 (1,100–1,300)") == (1234, 1100, 1300)  # noqa: RUF001
    assert figure("4.3 / 8.5") == (4.3, None, None)
    assert figure("cannot be had") is None


def test_the_best_comes_first_and_who_has_no_figure_is_left_out() -> None:
    rows = table(sections(RESULTS)["Jobs per second"])
    rates = bars(rows, "one by one")
    assert [(bar.label, bar.value, bar.ours) for bar in rates] == [
        ("Celery", 2000, False),
        ("Oncely", 1234, True),
    ]
    latencies = bars(rows, "latency idle, p50 / p99 ms")
    assert [bar.label for bar in latencies] == ["Oncely", "Celery"]


def test_only_what_stands_between_the_marks_is_written_anew() -> None:
    page = f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n"
    once = filled(page, ["new"])
    assert once == f"before\n{MARKS[0]}\n\nnew\n\n{MARKS[1]}\nafter\n"
    assert filled(once, ["new"]) == once


def test_curves_are_well_formed() -> None:
    drawn = curves("a < b", {"flow": [10_000, 9_000, 9_500], "held": [7]})
    assert ET.fromstring(drawn).tag.endswith("svg")
