"""The order in which processes share the tests."""

from pathlib import Path

import pytest

from tests.order import LONGEST, dealt

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("processes", [2, 4, 5])
def test_every_test_is_dealt_once_and_the_longest_come_first(processes: int) -> None:
    files = [f for n in range(40) for f in (LONGEST[n % len(LONGEST)], "short.py")] + ["x.py"] * 99
    numbers = list(range(len(files)))
    order = dealt(numbers, files, processes)
    assert sorted(order) == numbers
    fronts = [order[n * len(order) // processes] for n in range(processes)]
    assert [files[number] for number in fronts] == list(LONGEST[:processes])


def test_the_files_that_take_longest_are_there() -> None:
    assert [file for file in LONGEST if not (ROOT / file).is_file()] == []
