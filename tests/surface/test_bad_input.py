"""Bad input: one clear line, exit 2, and nothing is stored, not even an empty file."""

import json
from pathlib import Path

import pytest

from oncely.surface.cli.program import run

BAD: list[tuple[list[str], str]] = [
    (["bogus"], 'Unknown command "bogus"'),
    (["jbos"], 'Did you mean "jobs"?'),
    (["--bogus"], "Unknown"),
    (["enqueue"], "KIND requires an argument"),
    (["enqueue", "k", "1", "2"], "Unexpected: 2."),
    (["enqueue", "k", "--qeue", "x"], "Unknown option: --qeue. Did you mean --queue?"),
    (["enqueue", "k", "--queue"], "--queue requires an argument"),
    (["enqueue", "k", "--queue", "a", "--queue", "b"], "--queue specified multiple times"),
    (["enqueue", "k", "hello"], "the payload is not JSON"),
    (["enqueue", "k", ""], "the payload is not JSON"),
    (["enqueue", "k", "{'a': 1}"], "the payload is not JSON"),
    (["enqueue", "k", "NaN"], "the payload is not JSON"),
    (["enqueue", "k", "1e999"], "the payload is not JSON"),
    (["enqueue", "k", "[" * 100_000], "the payload is not JSON"),
    (["enqueue", "k", "[" * 100 + "]" * 100], "nested more than 64 levels"),
    (["enqueue", "k", f'"{"x" * 1_100_000}"'], "more than the 1,048,576 allowed"),
    (["enqueue", "k", "@missing.json"], "cannot be read from 'missing.json': No such file"),
    (["enqueue", "k", "@."], "cannot be read from '.': Is a directory"),
    (["enqueue", "k", "@a\0b"], "cannot be read"),
    (["enqueue", "k", '"\udcff"'], "the payload is not JSON ('utf-8' codec can't decode byte 0xff"),
    (["enqueue", "\udcff"], "kind is '\\udcff'"),
    (["enqueue", "k", "--\udcff"], "Unknown option: --\\udcff"),
    (["enqueue", "bad kind"], "kind is 'bad kind'"),
    (["enqueue", ""], "kind is ''"),
    (["enqueue", "k\nk"], "kind is"),
    (["enqueue", "k", "--queue", "a/b"], "queue is 'a/b'"),
    (["enqueue", "k", "--priority", "high"], 'unable to convert "high" into int'),
    (["enqueue", "k", "--priority", "40000"], "priority is 40000"),
    (["enqueue", "k", "--delay", "soon"], 'unable to convert "soon" into float'),
    (["enqueue", "k", "--delay", "-1"], "delay is -1.0"),
    (["enqueue", "k", "--delay", "nan"], "delay is nan"),
    (["enqueue", "k", "--run-at", "tomorrow"], "--run-at is 'tomorrow'"),
    (["enqueue", "k", "--run-at", "2030-01-31T09:00:00"], "has no time zone"),
    (["enqueue", "k", "--delay", "1", "--run-at", "2030-01-31T09:00Z"], "both given"),
    (["enqueue", "k", "--max-attempts", "21"], "max_attempts is 21"),
    (["enqueue", "k", "--timeout", "0"], "timeout is 0"),
    (["enqueue", "k", "--unique-key", ""], "unique_key has 0 characters"),
    (["enqueue", "k", "--idempotency-key", "x" * 256], "idempotency_key has 256 characters"),
    (["enqueue", "k", "--group-key", "a\tb"], "control character"),
    (["enqueue", "k", "--tag", " a"], "white space"),
    (["enqueue", "k", "--no-json"], "Unknown option: --no-json"),
    (["jobs", "--state", "done"], 'Invalid value "done" for --state'),
    (["jobs", "--limit", "many"], 'unable to convert "many" into int'),
    (["jobs", "extra"], "Unexpected: extra."),
    (["show"], "JOB_ID requires an argument"),
    (["show", "a", "b"], "Unexpected: b."),
    (["cancel"], "JOB_ID requires an argument"),
    (["replay"], "JOB_ID requires an argument"),
    (["migrate", "now"], "Unexpected: now."),
    (["user", "create", "ada"], "--role is missing"),
    (["user", "create", "--role", "reader"], "needs the name of a user"),
    (["user", "create", "ada", "--role", "admin"], 'Invalid value "admin" for --role'),
    (["user", "create", "a\tb", "--role", "reader"], "control character"),
    (["user", "list", "ada"], "takes no name"),
    (["user", "remove", "ada", "--role", "reader"], "go with `user create`"),
    (["user", "set", "ada"], "nothing is set"),
    (["doctor", "--url", "nonsense"], "the store's URL is 'nonsense'"),
    (["jobs", "--url", "mysql://host/db"], "the store's URL begins with mysql://"),
    (["jobs", "--url", "postgresql+asyncpg://h/db"], "psycopg 3: write postgresql://… instead"),
    (["bench", "--url", "postgresql+psycopg2://h/db"], "psycopg 3: write postgresql://… instead"),
    (["jobs", "--url", "sqlite+aiosqlite:///a.db"], "sqlite3: write sqlite://… instead"),
    (["jobs", "--url", "sqlite://relative.db"], "expected sqlite:///relative/file.db"),
    (["jobs", "--url", ""], "the store's URL is ''"),
    (["enqueue", "k", "--url", "sqlite://"], "is in memory"),
    (["enqueue", "k", "--url", "sqlite:///:memory:"], "is in memory"),
    (["enqueue", "k", "--url", "sqlite:///a%00b.db"], "the store's URL is"),
    (["demo", "--url", "sqlite:///:memory:"], "is in memory"),
    (["migrate", "--schema", "A;B", "--url", "postgresql://h/db"], "schema is 'A;B'"),
]
NAMES = [f"{n}-{args[0]}" for n, (args, _) in enumerate(BAD)]


@pytest.mark.parametrize(("args", "message"), BAD, ids=NAMES)
def test_one_clear_line(
    args: list[str],
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("ONCELY_URL", raising=False)
    assert run(args) == 2
    human = capsys.readouterr()
    assert human.err.startswith("oncely: ")
    assert message in human.err
    assert human.err.count("\n") == 1
    assert run([*args, "--json"]) == 2
    machine = capsys.readouterr()
    assert machine.out == ""
    error = json.loads(machine.err)
    assert tuple(error) == ("error", "message")
    assert error["error"] == "InvalidInput"
    assert machine.err.count("\n") == 1
    assert list(folder.iterdir()) == []
