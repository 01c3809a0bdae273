"""The page of patterns shows the code that is run, and says of it what the tests found."""

import re
import textwrap
from pathlib import Path

from tests.crash.original_scenes import COLUMNS, RECIPES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/guide/patterns.md").read_text()
FILE_OR_CODE = re.compile(r"\]\(\.\./\.\./(examples/[^)]+)\)|```py\n(.*?)```", re.DOTALL)


def shown() -> list[tuple[str, str]]:
    """Each piece of code, with the file that was named last before it."""
    pieces, file = [], ""
    for name, code in FILE_OR_CODE.findall(PAGE):
        file = name or file
        if code:
            pieces.append((file, code))
    return pieces


def test_the_code_is_that_of_the_examples() -> None:
    for file, code in shown():
        source = (ROOT / file).read_text()
        alike = [code, textwrap.indent(code, "    ")]
        assert any(text in source for text in alike), f"{file} does not have:\n{code}"


def test_every_example_is_shown() -> None:
    files = {
        str(path.relative_to(ROOT))
        for folder in ("originals", "effects")
        for path in (ROOT / "examples" / folder).glob("*.py")
        if path.stem not in ("places", "world")
    }
    assert len(files) > 15
    assert files == {file for file, _ in shown()}


def test_the_table_is_what_the_tests_found() -> None:
    head, *rows = re.findall(r"^\| (\[?\w[^|]*) \|((?:[^|\n]+\|){6})$", PAGE, re.MULTILINE)
    assert tuple(cells(head[1])) == COLUMNS
    told = {re.sub(r"\W+", "_", link.split("]")[0].strip("[")): cells(row) for link, row in rows}
    found = {
        name: ["–" if verdict == "none" else verdict for verdict in recipe.truth]  # noqa: RUF001
        for name, recipe in RECIPES.items()
    }
    assert told == found


def cells(row: str) -> list[str]:
    return [cell.strip(" *") for cell in row.rstrip("|").split("|")]
