"""`oncely bench` measures on stores of its own, counts truly, and leaves nothing behind."""

import os
import signal
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncely import NewJob, Oncely
from oncely.store.measure import IndexEntries, kept_log, log_bytes
from oncely.surface.cli.bench.measures import MEASURES
from oncely.surface.cli.bench.plot import Bar, chart
from oncely.surface.cli.bench.tap import tapped
from tests.surface.command import SCRIPT, Command, environment
from tests.waiting import PATIENCE_SECONDS, wait_until

COSTS = {"round_trips", "wal_bytes", "index_entries", "disk_bytes"}


def measured(said: Any) -> dict[str, Any]:
    return {one["name"]: one for one in said["measures"]}


def schemas(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("select nspname from pg_namespace where nspname like 'oncely%'")
        return {name for (name,) in rows}


def around(url: str) -> set[str]:
    """What there is beside the store: schemas, or files."""
    return schemas(url) if url.startswith("postgres") else set(os.listdir(Path(url[10:]).parent))


def test_every_measure_is_taken_and_the_jobs_that_were_there_stay(
    here: Command, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Oncely(url) as app:
        app.migrate()
        mine = app.enqueue("bench", {"mine": True}).job_id
    before = around(url)
    monkeypatch.setenv("ONCELY_URL", url)
    plot = folder / "bench.svg"
    said = here("bench", "--quick", "--json", "--plot", str(plot)).json()
    found = measured(said)
    assert list(found) == list(MEASURES)
    for one in found.values():
        assert one["rounds"] == 1
        assert 0 < one["low"] <= one["median"] <= one["high"]
        assert set(one["cost"]) == COSTS
    assert found["latency"]["p99"] >= found["latency"]["median"]
    costs = {name: one["cost"] for name, one in found.items()}
    # A job is a row with one index and a row to wait in; a key is one more, a repeat a trace. Of
    # the thousand repeats PostgreSQL tries the first as new, and counts the key that it refuses.
    repeats = 1.001 if url.startswith("postgres") else 1
    for name, entries in {"enqueue": 2, "bulk": 2, "keyed": 3, "repeats": repeats}.items():
        assert costs[name]["index_entries"] == entries, name
    assert costs["enqueue"]["wal_bytes"] > costs["bulk"]["wal_bytes"] > 100
    assert ET.fromstring(plot.read_text()).tag.endswith("svg")
    if url.startswith("postgres"):
        assert 1 <= costs["enqueue"]["round_trips"] < 1.2
        assert costs["bulk"]["round_trips"] < 0.1
    else:
        assert costs["enqueue"]["round_trips"] is None
    assert around(url) == before
    with Oncely(url) as app:
        assert [job.job_id for job in app.jobs()] == [mine]
        assert app.jobs()[0].state == "pending"


def test_a_table_for_people(oncely: Command, folder: Path) -> None:
    done = oncely("bench", "--quick", "--only", "bulk", "--only", "latency", "--plot", "b.svg")
    assert done.code == 0, done
    lines = done.out.splitlines()
    assert lines[0].startswith("SQLite ")
    names = [line.split()[0] for line in lines if line.startswith(tuple(MEASURES))]
    assert names == ["bulk", "latency"] * 2  # the table, and what they are
    assert (folder / "b.svg").exists()
    assert os.listdir(folder) == ["b.svg"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--only", "speed"], "there is no measure 'speed'"),
        (["--concurrency", "0"], "--concurrency is 0"),
        (["--plot", "b.png"], "ends in .svg"),
        (["--plot", "no/b.svg"], "there is no folder"),
        (["--url", "https://queue.example"], "expected the database itself"),
        (["--url", "sqlite://"], "in memory"),
        (["--url", "postgresql://localhost/x", "--schema", "a; drop"], "--schema is"),
    ],
)
def test_bad_input_is_one_line(here: Command, folder: Path, args: list[str], told: str) -> None:
    done = here("bench", *args)
    assert done.code == 2
    assert done.out == ""
    assert told in done.err
    assert done.err.count("\n") == 1


def test_nothing_is_left_after_an_interrupt(postgres_url: str, folder: Path) -> None:
    command = [str(SCRIPT), "bench", "--only", "drain", "--url", postgres_url]
    with subprocess.Popen(command, cwd=folder, env=environment()) as process:
        wait_until(lambda: schemas(postgres_url))
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 130
    assert schemas(postgres_url) == set()


def test_round_trips_are_counted(postgres_url: str) -> None:
    with tapped(postgres_url) as tap, psycopg.connect(tap.url, autocommit=True) as connection:
        connection.prepare_threshold = None  # preparing takes a round trip of its own
        for count in (1, 5):
            before = tap.round_trips
            for _ in range(count):
                connection.execute("select repeat('x', 200000)")  # more than one packet
            assert tap.round_trips == before + count
        before = tap.round_trips
        with connection.pipeline():
            for _ in range(5):
                connection.execute("select 1")
        assert tap.round_trips <= before + 2


def test_the_log_and_the_index_entries_of_sqlite_are_counted(sqlite_url: str) -> None:
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    with Oncely(sqlite_url) as app:
        app.migrate()
        entries = IndexEntries(path)
        before = entries.read()
        with kept_log(path):
            app.enqueue_many(NewJob("k", "x" * 1_000) for _ in range(10_000))
            first = log_bytes(path)
            assert first > 10_000_000  # past the size at which the log is given back
            app.enqueue_many(NewJob("k", "x" * 1_000, unique_key=str(n)) for n in range(1_000))
            assert log_bytes(path) > first
        assert entries.read() - before == 10_000 * 2 + 1_000 * 3


def test_a_chart_is_well_formed_whatever_the_labels_and_figures() -> None:
    bars = [Bar("a < b & c", 0.5), Bar("ours", 123_456, 100_000, 150_000, ours=True), Bar("0", 0)]
    for drawn in (chart('"t" <x>', "jobs/s", bars), chart("empty", "ms", [])):
        assert ET.fromstring(drawn).tag.endswith("svg")
    assert "123,456" in chart("t", "jobs/s", bars)
