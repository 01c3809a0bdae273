"""The `oncely` command against a server."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncely import Oncely
from tests.surface.command import SCRIPT, Command, Done, environment, run
from tests.surface.http.server import in_thread
from tests.waiting import PATIENCE_SECONDS, wait_until


@contextmanager
def worker(*args: str, cwd: Path) -> Iterator[None]:
    process = subprocess.Popen(
        [SCRIPT, "worker", *args],
        cwd=cwd,
        env=environment(PYTHONPATH=str(cwd)),
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


def test_the_commands_work_against_a_server(
    sqlite_url: str, tmp_path: Path, here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Oncely(sqlite_url)
    key = app.create_token(["publish", "read", "work", "admin"]).key
    (tmp_path / "shop.py").write_text(
        "from oncely import Oncely, Nack\n"
        "app = Oncely()\n"
        "@app.job('good')\n"
        "def good(ctx):\n"
        "    return ctx.payload\n"
        "@app.job('bad')\n"
        "def bad(ctx):\n"
        "    raise Nack('out of luck', retryable=False)\n"
    )
    with app, in_thread(app) as url:

        def oncely(*args: str, api_key: str = key) -> Done:
            monkeypatch.setenv("ONCELY_URL", url)
            monkeypatch.setenv("ONCELY_API_KEY", api_key)
            return here(*args, "--json")

        enqueue = ("enqueue", "good", '{"a": 1}', "--idempotency-key", "one", "--json")
        good = run(*enqueue, cwd=tmp_path, ONCELY_URL=url, ONCELY_API_KEY=key).json()
        again = oncely("enqueue", "good", '{"a": 1}', "--idempotency-key", "one").json()
        assert good["job_id"] == again["job_id"]
        assert (good["inserted"], again["inserted"]) == (True, False)
        bad = oncely("enqueue", "bad", "2").json()
        with worker("shop:app", "--url", url, "--api-key", key, cwd=tmp_path):
            wait_until(lambda: {job.state for job in app.jobs()} == {"completed", "failed"})
        listed = {job["job_id"]: job["state"] for job in oncely("jobs").json()}
        assert listed == {good["job_id"]: "completed", bad["job_id"]: "failed"}
        assert oncely("show", good["job_id"]).json()["result"] == {"a": 1}
        assert len(oncely("dlq").json()) == 1
        assert oncely("replay", bad["job_id"]).code == 0
        assert oncely("queues", "--pause", "default").code == 0
        [finding] = oncely("doctor").json()
        assert (finding["name"], finding["status"]) == ("server", "ok")
        refused = oncely("jobs", api_key="wrong")
        assert refused.code == 1
        assert "AccessRefused" in refused.err
        monkeypatch.delenv("ONCELY_URL")
        monkeypatch.delenv("ONCELY_API_KEY")
        option = here("jobs", "--url", url, "--api-key", key, "--json")
        assert len(option.json()) == 2
        told = oncely("migrate")
        assert told.code == 1, told
        assert "through a server" in told.err
        assert key not in told.err
