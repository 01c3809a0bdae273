"""The documents are true: their examples run, and nothing public is left out of them."""

import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import oncely
from oncely.asgi import IdempotencyMiddleware
from oncely.model.event import WHATS
from oncely.model.job import NewJob
from oncely.model.transition import ACTIVE, STATES, TRANSITIONS
from oncely.surface.asgi import problem
from oncely.surface.cli.program import build

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"(?:^(?:\$ )?|`|\$\()(oncely [a-z][^`\n)#]* [^`\n)#]+)", re.MULTILINE)
"""One with something after its name: alone, that is only named."""
PLACEHOLDER = re.compile(r"\b[A-Z]+\b|…|<|\|")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", *sorted((ROOT / "docs/guide").glob("*.md"))],
    ids=lambda page: page.name,
)
def test_the_examples_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    source = "\n".join(BLOCK.findall(page.read_text()))
    assert source, "the page has no examples"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        cwd=tmp_path,
        env={**os.environ, "ONCELY_URL": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_command_of_the_guides_is_understood() -> None:
    program, seen = build(), 0
    for page in PAGES:
        for found in COMMAND.findall(page.read_text()):
            if page.parent.name in ("guide", ROOT.name) and not PLACEHOLDER.search(found):
                program.parse_args(shlex.split(found)[1:], exit_on_error=False, print_error=False)
                seen += 1
    assert seen > 15


def test_every_error_is_documented() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text()
    names = [
        name
        for name in oncely.__all__
        if isinstance(value := getattr(oncely, name), type) and issubclass(value, Exception)
    ]
    assert len(names) > 10
    assert [name for name in names if f"`{name}`" not in page] == []


def test_every_option_of_enqueue_is_documented() -> None:
    page = (ROOT / "docs/reference/options.md").read_text()
    names = [*NewJob.__struct_fields__, "tx"]
    assert [name for name in names if f"| `{name}` |" not in page] == []
    told = str(oncely.Oncely.enqueue.__doc__)
    untold = {"kind", "payload"}
    assert [name for name in names if f"`{name}`" not in told and name not in untold] == []


def test_the_states_page_is_the_transition_table() -> None:
    page = (ROOT / "docs/reference/states.md").read_text()
    for state in STATES:
        holds = "yes" if state in ACTIVE else "no"
        assert re.search(rf"\| `{state}` \|[^|]*\| {holds} \|", page)
    drawn = set(re.findall(r"^    (\w+) --> (\w+): (\w+)$", page, re.MULTILINE))
    assert drawn == {(before, after, move) for (before, move), after in TRANSITIONS.items()}


def test_every_event_and_its_fields_are_documented() -> None:
    page = (ROOT / "docs/reference/events.md").read_text()
    names = [*WHATS, *oncely.Event.__struct_fields__, "reason", *oncely.Story.__struct_fields__]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_every_decision_is_listed() -> None:
    index = (ROOT / "docs/adr/README.md").read_text()
    for page in (ROOT / "docs/adr").glob("0*.md"):
        assert f"({page.name})" in index


def test_every_option_and_answer_of_the_middleware_is_documented() -> None:
    page = (ROOT / "docs/guide/http-idempotency.md").read_text()
    options = [*inspect.signature(IdempotencyMiddleware).parameters][1:]
    assert len(options) > 5
    told = str(IdempotencyMiddleware.__doc__)
    for name in options:
        assert re.search(rf"^\| .*`{name}`.* \|", page, re.MULTILINE), name
        assert f"`{name}`" in told, name
    refusals = [value for value in vars(problem).values() if isinstance(value, problem.Problem)]
    refusals += [problem.invalid(""), problem.too_large(0), problem.not_kept(200)]
    for refusal in refusals:
        assert re.search(rf"\| {refusal.status}\b.*\| `{refusal.code}` \|", page), refusal.code
