import os
import re
import subprocess
from pathlib import Path

from oncely import NewJob, Oncely
from tests.surface.command import SCRIPT, Command, environment, on_terminal

ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def fill(url: str) -> list[str]:
    """Three jobs; the ids, the newest first."""
    with Oncely(url) as app:
        receipts = app.enqueue_many(
            [
                NewJob("order.charge", {"order_id": 1}, queue="payments"),
                NewJob("mail.send", "ünï", delay=3600),
                NewJob("a.kind.with.a.name.longer.than.most", {"text": "x" * 500}),
            ]
        ).receipts
        app.cancel(receipts[0].job_id)
    return [receipt.job_id for receipt in reversed(receipts)]


def test_an_empty_store(at: Command) -> None:
    assert at("jobs").out == "no jobs\n"
    done = at("jobs", "--state", "failed", "--kind", "k")
    assert (done.code, done.out) == (0, "no jobs with state failed, kind k\n")
    assert at("jobs", "--json").json() == []


def test_the_newest_first(at: Command, url: str) -> None:
    ids = fill(url)
    done = at("jobs")
    head, *rows = done.out.splitlines()
    assert head.split() == ["JOB", "STATE", "KIND", "QUEUE", "AGE", "PAYLOAD"]
    assert [row.split()[0] for row in rows] == ids
    assert [row.split()[1] for row in rows] == ["pending", "scheduled", "cancelled"]
    assert [row.split()[3] for row in rows] == ["default", "default", "payments"]
    assert all(re.fullmatch(r"\d+[smhd]", row.split()[4]) for row in rows)
    assert rows[0].endswith("xxx…")
    assert rows[1].endswith('"ünï"')
    assert rows[2].endswith('{"order_id":1}')
    assert not ANSI.search(done.out)


def test_filters(at: Command, url: str) -> None:
    newest, mail, order = fill(url)
    listed = [job["job_id"] for job in at("jobs", "--limit", "2", "--json").json()]
    assert listed == [newest, mail]
    assert [job["job_id"] for job in at("jobs", "--queue", "payments", "--json").json()] == [order]
    assert mail in at("jobs", "--kind", "mail.send", "--state", "scheduled").out
    note = at("jobs", "--limit", "2").out.splitlines()[-1]
    assert note == "the newest 2; there may be more: --limit"


def test_json_has_every_field(at: Command, url: str) -> None:
    fill(url)
    oldest = at("jobs", "--json").json()[-1]
    with Oncely(url) as app:
        job = app.get(oldest["job_id"])
    assert job is not None
    assert tuple(oldest) == job.__struct_fields__
    assert oldest["state"] == "cancelled"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", oldest["created_at"])


def test_a_narrow_terminal(sqlite_url: str, folder: Path) -> None:
    ids = fill(sqlite_url)
    done = on_terminal("jobs", "--url", sqlite_url, cwd=folder)
    assert done.code == 0
    assert ANSI.search(done.out)
    lines = ANSI.sub("", done.out).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[1::2]] == ids
    assert lines[2].startswith('    {"text":"xxx')
    assert [line.split()[1] for line in lines[1::2]] == ["pending", "scheduled", "cancelled"]


def test_a_wide_terminal(sqlite_url: str, folder: Path) -> None:
    ids = fill(sqlite_url)
    lines = ANSI.sub("", on_terminal("jobs", "--url", sqlite_url, cwd=folder, columns=160).out)
    assert [line.split()[0] for line in lines.splitlines()[1:]] == ids
    assert max(map(len, lines.splitlines())) <= 160


def test_a_pipe_that_is_closed_early(sqlite_url: str, folder: Path) -> None:
    with Oncely(sqlite_url) as app:
        app.enqueue_many([NewJob("k", "x" * 100) for _ in range(3000)])
    for form in ([], ["--json"]):
        process = subprocess.Popen(
            [SCRIPT, "jobs", "--limit", "3000", "--url", sqlite_url, *form],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            cwd=folder,
        )
        with process:
            assert process.stdout is not None
            assert process.stderr is not None
            os.read(process.stdout.fileno(), 1)
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 141


def test_a_full_disk_is_one_line(sqlite_url: str, folder: Path) -> None:
    fill(sqlite_url)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [SCRIPT, "jobs", "--url", sqlite_url],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            cwd=folder,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "oncely: [Errno 28] No space left on device\n"
