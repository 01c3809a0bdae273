"""The plugin for pytest, in runs of its own."""

import pytest

from oncely import Context, Defer, Oncely
from oncely.testing import Clock, assert_enqueued, drain, run_twice

pytest_plugins = ["pytester"]


def test_drain_runs_also_what_is_not_due(app: Oncely) -> None:
    ran: list[int] = []

    @app.job("later")
    def later(ctx: Context) -> None:
        ran.append(ctx.attempt)
        if len(ran) < 3:
            raise Defer(3600)

    app.enqueue("later", delay=86_400)
    assert app.drain() == 0
    assert drain(app) == 3
    assert len(ran) == 3


def test_the_clock_moves(app: Oncely) -> None:
    app.job("later")(lambda ctx: None)
    app.enqueue("later", delay=100)
    Clock(app).advance(99)
    assert app.drain() == 0
    Clock(app).advance(2)
    assert app.drain() == 1


def test_run_twice_delivers_twice(app: Oncely) -> None:
    ran: list[str] = []

    @app.job("twice")
    def twice(ctx: Context, name: str) -> str:
        ran.append(ctx.job_id)
        told: str = ctx.step("effect", lambda: name)
        return told

    job = run_twice(app, "twice", "ann")
    assert (job.state, job.result) == ("completed", "ann")
    assert ran == [job.job_id, job.job_id]


def test_assert_enqueued(app: Oncely) -> None:
    app.enqueue("mail", {"to": "ann"})
    app.enqueue("mail", {"to": "bob"})
    [job] = assert_enqueued(app, "mail", {"to": "ann"})
    assert job.payload == {"to": "ann"}
    assert_enqueued(app, "mail", count=2)
    assert_enqueued(app, "other", count=0)
    with pytest.raises(AssertionError, match="0 jobs of kind 'mail' with 'x' were enqueued"):
        assert_enqueued(app, "mail", "x")


def test_the_fixture_fails_with_the_story(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(
        """
        import sqlite3
        import pytest
        from oncely import Oncely
        from oncely.prove import Table

        @pytest.mark.prove(max_faults=1, budget_seconds=float("inf"))
        @pytest.mark.parametrize("kind", ["twice", "once"])
        def test_it(prove, tmp_path, kind):
            url = f"sqlite:///{tmp_path / 'jobs.db'}"
            app = Oncely(url)
            db = sqlite3.connect(tmp_path / "jobs.db")
            db.execute("create table notes (text text)")
            db.close()

            @app.job("twice")
            def twice(ctx):
                write("insert into notes values ('x')")

            @app.job("once")
            def once(ctx):
                write("insert into notes select 'x' where not exists (select 1 from notes)")

            def write(sql):
                db = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
                db.execute(sql)
                db.close()

            report = prove(app, kind, world=[Table(url, "notes")])
            assert report.schedules > 3
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:oncely", "-p", "oncely.testing")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*twice: doubled*", "*test_the_fixture_fails_with_the_story.py:*"])
