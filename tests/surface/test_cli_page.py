"""docs/reference/cli.md is complete, and its examples are true."""

import re
import subprocess
from pathlib import Path
from shlex import split

import pytest

from oncely import Context, KeyConflict, KeyWarning, Oncely, acting
from oncely.model.worker import About
from oncely.store.requests import Mark, begin
from oncely.store.workers import seen
from oncely.surface.cli.program import build
from tests.surface.command import Command, Done, environment, fail

PAGE = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
STEP = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
APP = build()
COMMANDS = [name for name in APP if not name.startswith("-")]
DEMOS = dict(STEP.findall("".join(BLOCK.findall(SECTIONS["oncely demo"]))))
"""What they say. They start many processes: test_demo.py runs each once, for all that it checks."""
COMMON = {"--url", "--api-key", "--schema", "--json"}


def test_there_is_a_section_for_each_command_and_no_other() -> None:
    assert list(SECTIONS) == ["Everywhere", *(f"oncely {name}" for name in COMMANDS)]
    for name in COMMANDS:
        assert f"[`oncely {name}`](#oncely-{name})" in PAGE
    for flag in ("--help", "--version"):
        assert f"oncely {flag}`" in PAGE


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented_and_no_other(name: str) -> None:
    section = SECTIONS[f"oncely {name}"]
    told = set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))
    known = {
        name
        for argument in APP[name].assemble_argument_collection()
        for name in argument.names
        if name != "*"
    }
    assert known >= COMMON
    assert told == known - COMMON
    assert f"$ oncely {name}" in section


def test_the_common_options_are_documented() -> None:
    told = re.findall(r"^\| `(--[\w-]+)` \|", SECTIONS["Everywhere"], re.MULTILINE)
    assert set(told) == COMMON


def without_chance(text: str, folder: Path) -> list[str]:
    """What differs from run to run made the same; the order of the processes is one such thing."""
    text = ID.sub("ID", text).replace(str(folder), "/srv/shop")
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"\d{4}-\d\d-\d\d [\d:]+ UTC, (now|in \d+ \w+|\d+ \w+ ago)", "TIME", text)
    text = re.sub(r"\d{4}-\d\d-\d\d [\d:.]+ UTC", "TIME", text)
    text = re.sub(r" \d+[smhd] +", " AGE ", text)
    text = re.sub(r"^(ok|warning) +sqlite version .*$", "SQLITE", text, flags=re.MULTILINE)
    if "publishes" in text:
        # How many jobs the killed publisher got in moves three numbers and a sentence; how many
        # receipts the killed workers had under way moves others, and some lines.
        text = " ".join(re.sub(r"^order \d+ was held, .*\n", "", text, flags=re.MULTILINE).split())
        text = re.sub(r"(The killed publisher had|What got no answer) .*? repeat\.", "STORY", text)
        text = re.sub(r"(?<=[ :])[\d,]{1,5}(?=[ ,}])", "N", text)
        return sorted(text.split())
    return text.splitlines()


def test_the_examples_run(here: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("ONCELY_URL", raising=False)
    with Oncely("sqlite:///mail.db") as app:
        app.enqueue("mail.send", {"to": "ann@example.com"})
        fail(app)
    with Oncely("sqlite:///dead.db") as app:
        app.migrate()
    with Oncely("sqlite:///held.db") as app:
        app.job("mail.send")(lambda ctx: ctx.fence("welcome", lost))
        app.enqueue("mail.send")
        app.drain()
    with Oncely("sqlite:///charged.db") as app:
        app.job("order")(charge_and_fail)
        app.enqueue("order", max_attempts=1)
        app.drain()
    with Oncely("sqlite:///keys.db") as app:
        make_keys(app)
    with Oncely("sqlite:///shop.db") as app:
        mark = Mark("ann", "order-9482-charge", 1, 0, 86_400_000_000)
        app._engine.run(lambda _: begin(mark, "f", run_unknown=False, again=False), "write")
    with Oncely("sqlite:///changed.db") as app:
        with acting("ann@example.com"):
            app.pause("payments")
        with acting("ann@example.com", note="the bank asked for it"):
            app.set_queue("payments", concurrency=5)
    real: dict[str, str] = {}
    for block in BLOCK.findall(PAGE):
        if "planned.db" in block:
            declare_schedule()
        if "staffed.db" in block:
            report_worker()
        for command, told in STEP.findall(block):
            if command in DEMOS:
                continue
            typed = ID.sub(lambda match: real[match.group()], command)
            said = through_the_shell(typed) if "|" in typed else here(*split(typed)[1:])
            assert without_chance(said.out + said.err, folder) == without_chance(told, folder)
            real.update(zip(ID.findall(told), ID.findall(said.out + said.err), strict=True))


# These two are taken for gone after half a minute of silence, and a busy machine may take that long
# for the examples before theirs.
def declare_schedule() -> None:
    with Oncely("sqlite:///planned.db") as app:
        zone = "Europe/Berlin"
        app.schedule("digest", cron="0 9 * * MON-FRI", timezone=zone, queue="mail")
        app.schedules()


def report_worker() -> None:
    with Oncely("sqlite:///staffed.db") as app:
        me = About("till-2:4021:9f1c22ab", "till-2", 4021, ["payments", "mail"], 16, "0.1.0")
        app._engine.run(lambda _: seen(me, 3), "write")


def charge_and_fail(ctx: Context) -> None:
    ctx.step("charge", str)
    lost()


def lost() -> None:
    raise TimeoutError("no answer")


def make_keys(app: Oncely) -> None:
    for _ in range(2):
        app.enqueue("order.charge", 1, idempotency_key="order:1:charge")
    with pytest.warns(KeyWarning):
        app.enqueue("report.build", idempotency_key="7bd8f9a2-3c41-4e57-9a40-5b0f6d1c2e83")
    app.enqueue("user.sync", 1, idempotency_key="user:1")
    with pytest.raises(KeyConflict):
        app.enqueue("user.sync", 2, idempotency_key="user:1")


def through_the_shell(line: str) -> Done:
    done = subprocess.run(
        ["/bin/sh", "-c", line], capture_output=True, text=True, env=environment(), check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)
