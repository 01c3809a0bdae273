"""The pages about jobs, over HTTP: lists, a story, doubt, dead letters, and the audit trail."""

import html
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest

from oncely import Context, Nack, NewJob, Oncely, acting
from oncely.flow import replay as replaying
from oncely.store import listing
from oncely.store.requests import Mark, begin
from tests.engine.steps import found
from tests.surface.http.server import Client, in_thread

PROBE = "\"'><script>alert(1)</script>{{7*7}}"
SECRET = "hunter2-hunter2"


class Site(Client):
    def __init__(self, url: str, app: Oncely) -> None:
        super().__init__(f"{url}/dashboard")
        self.app = app

    def page(self, path: str, expected: int = 200, /, **query: Any) -> str:
        answer = self.get(path, params=query or None)
        assert answer.status_code == expected, (path, answer.status_code, answer.text[:500])
        return _checked(answer.text)

    def act(self, path: str, expected: int = 303, /, **form: Any) -> str:
        answer = self.post(path, data=form)
        assert answer.status_code == expected, (path, answer.status_code, answer.text[:2000])
        if expected == 303:
            return self.page(answer.headers["location"].removeprefix("/dashboard"))
        return _checked(answer.text)


class _Probe(HTMLParser):
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        assert tag != "script" or "src" in names
        assert not any(name.startswith("on") or name == "style" for name in names), attrs


def _checked(text: str) -> str:
    """Whatever page: no probe is alive in it, and no secret."""
    _Probe().feed(text)
    assert "49" not in re.findall(r"\d+(?=</script>)", text)
    assert SECRET not in text
    return html.unescape(text)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("pages")
    with (
        Oncely(f"sqlite:///{folder}/jobs.db") as app,
        in_thread(app) as url,
        Site(url, app) as site,
    ):

        @app.job("order.fail", queue="payments")
        def fail(ctx: Context, payload: Any) -> None:
            ctx.step("look up", str)
            raise Nack(
                f"card {ctx.payload['n']} declined {PROBE} password={SECRET}", retryable=False
            )

        @app.job("order.charge", queue="payments")
        def charge(ctx: Context, payload: Any) -> None:
            ctx.step("reserve", str)
            ctx.fence("charge", _time_out, payload)

        @app.job("mail.send", queue="mail")
        def send(ctx: Context, payload: Any) -> dict[str, Any]:
            ctx.step("render", lambda: PROBE)
            return {"told": PROBE, "api_key": SECRET}

        yield site


def _time_out(_: Any) -> None:
    raise TimeoutError("the bank did not answer")


def _payload(n: int) -> dict[str, Any]:
    return {"n": n, "text": PROBE, "password": SECRET, "inner": {"Api-Key": SECRET}}


def _ids(text: str) -> list[str]:
    return re.findall(r'class="id" href="/dashboard/jobs/([0-9a-f-]{36})"', text)


def test_jobs_are_listed_filtered_and_found(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    app = site.app
    jobs = app.enqueue_many(
        NewJob("list.a" if n % 2 else "list.b", None, queue=f"q{n % 3}", tags=[f"t{n}", PROBE],
               idempotency_key=f"list:{n}", group_key=PROBE if n == 5 else None, delay=3600)
        for n in range(120)
    )  # fmt: skip
    ids = [receipt.job_id for receipt in jobs.receipts][::-1]
    first = site.page("/jobs")
    assert _ids(first) == ids[:50]
    assert PROBE in first
    older = re.search(r'href="/dashboard(/jobs\?before=[^"]+)" rel="next">Older', first)
    assert older is not None
    assert _ids(site.page(older[1])) == ids[50:100]
    assert _ids(site.page("/jobs", kind="list.a", queue="q1", state="scheduled")) == [
        id for n, id in enumerate(ids) if (119 - n) % 2 and (119 - n) % 3 == 1
    ]
    assert _ids(site.page("/jobs", tag="t7")) == [ids[119 - 7]]
    assert _ids(site.page("/jobs", group=PROBE)) == [ids[119 - 5]]
    assert _ids(site.page("/jobs", key="list:9")) == [ids[119 - 9]]
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M}"
    assert _ids(site.page("/jobs", until="2020-01-01T00:00")) == []
    assert _ids(site.page("/jobs", **{"from": "2020-01-01T00:00"})) == ids[:50]
    assert now in site.page("/jobs", until=now)
    # The search: an id, the beginning of one, a key; and what is not there.
    for search in (ids[3], ids[3].upper(), "list:33"):
        answer = site.get("/jobs", params={"search": search})
        assert answer.headers["location"].startswith("/dashboard/jobs/0"), search
    assert len(_ids(site.page("/jobs", search=ids[3][:8]))) == 50
    assert "There is no job with this id" in site.page("/jobs", search=ids[3][:-6] + "abcdef")
    assert "No such jobs" in site.page("/jobs", search="nothing")
    # A rare filter says how far it came.
    monkeypatch.setattr(listing, "LOOKED", 10)
    rare = site.page("/jobs", tag="t3")
    assert "None found so far" in rare
    assert "Look further back" in rare
    for wrong in ({"kind": "no kind"}, {"state": "x"}, {"from": "today"}, {"before": "x"}):
        assert "expected" in site.page("/jobs", 422, **wrong) or "before" in wrong
    assert site.get("/jobs", params={"search": "\0"}).status_code == 422


def test_a_job_tells_its_story(site: Site) -> None:
    app = site.app
    receipt = app.enqueue("mail.send", _payload(1), idempotency_key=PROBE, unique_key="mail:1")
    app.enqueue("mail.send", _payload(1), idempotency_key=PROBE)
    app.drain()
    page = site.page(f"/jobs/{receipt.job_id}")
    for text in ("enqueued", "deduplicated", "claimed", "effect begun", "effect done", "completed"):
        assert f">{text}<" in page, text
    for lane in ("enqueue", "delivery 1", "effect render"):
        assert f"</title>{lane}</text>" in page, lane
    assert page.count("<rect") == 2
    assert page.count("<circle") == 2
    assert PROBE in page
    assert "•••" in page
    assert "Cancel…" not in page
    assert "Replay…" not in page
    unknown = receipt.job_id[:-4] + ("0000" if receipt.job_id[-4:] != "0000" else "1111")
    assert "There is no such job" in site.page(f"/jobs/{unknown}", 404)
    assert "There is no such job" in site.page("/jobs/x", 404)


def test_a_job_is_cancelled_with_a_reason(site: Site) -> None:
    job_id = site.app.enqueue("mail.send", _payload(2), delay=60).job_id
    assert "Cancel the job" in site.page(f"/jobs/{job_id}")
    page = site.act(f"/jobs/{job_id}/cancel", note=f"ticket 7 {PROBE}")
    assert "The job is cancelled." in page
    assert f"ticket 7 {PROBE}" in page
    [entry] = site.app.audit(name=job_id)
    assert (entry.act, entry.by, entry.note) == ("cancel", "anyone", f"ticket 7 {PROBE}")
    site.act(f"/jobs/{job_id}/replay", 422)


def test_a_failed_job_is_replayed_after_a_look(site: Site) -> None:
    app = site.app
    job_id = app.enqueue("order.fail", _payload(3)).job_id
    app.drain()
    page = site.page(f"/jobs/{job_id}")
    assert "Traceback" in page or "declined" in page
    preview = site.page(f"/jobs/{job_id}/replay")
    assert re.search(r"look up.*?</th>\s*<td class=\"number\">1<", preview, re.DOTALL)
    assert found(app, job_id).state == "failed", "to look changes nothing"
    assert "back in line" in site.act(f"/jobs/{job_id}/replay", note="again")
    assert found(app, job_id).state == "pending"
    app.drain()
    assert "do 'look up' again" in site.act(f"/jobs/{job_id}/replay", fresh="yes")
    assert found(app, job_id).effects == []
    assert "Only failed jobs are replayed" in site.page(f"/jobs/{job_id}/replay")
    assert [entry.note for entry in app.audit(name=job_id)] == [None, "again"]
    app.cancel(job_id)


def test_doubt_is_settled(site: Site) -> None:
    app = site.app
    yes, no = (app.enqueue("order.charge", _payload(n)).job_id for n in (4, 5))
    app.drain()
    inbox = site.page("/doubt")
    assert "It happened" in inbox
    assert "the bank did not answer" in inbox
    assert "effect reserve is done" in inbox.lower()
    assert "<dt>Ended</dt>" not in site.page(f"/jobs/{yes}")
    answer = {"job": yes, "effect": "charge", "note": f"seen {PROBE}"}
    refused = site.act("/doubt", 422, **answer, happened="yes", result="{")
    assert "not JSON" in refused
    assert refused.count(f"seen {PROBE}") == 1, "what was typed stays, where it was typed"
    assert "no answer was given" in site.act("/doubt", 422, **answer)
    assert "a result is given" in site.act("/doubt", 422, **answer, happened="no", result="1")
    assert {found(app, job_id).state for job_id in (yes, no)} == {"in_doubt"}
    page = site.act("/doubt", **answer, happened="yes", result='{"id": 7}')
    assert "not done again" in page
    assert f"seen {PROBE}" in page, "the trail of answers"
    [effect] = [each for each in found(app, yes).effects if each.name == "charge"]
    assert (effect.state, effect.result, effect.resolutions[0].by) == ("done", {"id": 7}, "anyone")
    site.act("/doubt", job=no, effect="charge", happened="no", note="")
    assert [each.name for each in found(app, no).effects] == ["reserve"]
    assert "charge" in site.act("/doubt", 422, **answer, happened="yes")
    app.cancel(no)
    app.drain()
    assert found(app, yes).state == "completed"


def test_requests_in_doubt_are_settled(site: Site) -> None:
    for key in ("r1", PROBE):
        mark = Mark("acme", key, 7, 0, 10**12)
        site.app._engine.run(
            lambda _, mark=mark: begin(mark, "1:0", run_unknown=False, again=False),  # type: ignore[misc]
            "transaction",
        )
    assert PROBE in site.page("/doubt")
    mine = {"key": "r1", "caller": "acme"}
    assert "status is None" in site.act("/doubt/request", 422, **mine, happened="yes")
    assert "repeats get" in site.act("/doubt/request", **mine, happened="yes", status="201")
    site.act("/doubt/request", key=PROBE, caller="acme", happened="no", note="none arrived")
    assert site.app.requests_in_doubt() == []
    assert [entry.note for entry in site.app.audit(about="request")] == ["none arrived", None]


def test_dead_letters_are_grouped_and_replayed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    app = site.app
    jobs = app.enqueue_many(NewJob("order.fail", _payload(n)) for n in range(10, 17)).receipts
    app.drain()
    ids = [receipt.job_id for receipt in jobs]
    page = site.page("/dead")
    assert "card … declined" in page
    [group] = set(re.findall(r"/dead\?group=([0-9a-f]{16})", page))
    assert sorted(_ids(site.page("/dead", group=group))) == ids
    preview = site.page("/dead/replay", job=ids[:2])
    assert "Replay 2 jobs" in preview
    assert re.search(r"look up.*?</th>\s*<td class=\"number\">2<", preview, re.DOTALL)
    assert {found(app, id).state for id in ids} == {"failed"}
    assert "2 jobs are back in line" in site.act("/dead/replay", job=ids[:2], note="the bank is up")
    assert [found(app, id).state for id in ids] == ["pending"] * 2 + ["failed"] * 5
    assert "1 stayed" in site.act("/dead/replay", job=ids[1:3])
    app.drain()
    # The group, in steps: each page carries what the next one needs.
    step = replaying.replay_step
    monkeypatch.setattr(
        "oncely.surface.dashboard.pages.dead.replay_step",
        lambda *args, **options: step(*args, **options, looked=3),
    )
    preview = site.page("/dead/replay", group=group)
    assert "Replay 7 jobs" in preview
    form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', preview))
    steps = 0
    while "To the dead letters" not in (page := site.act("/dead/replay", 200, **form, note="all")):
        form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))
        form.pop("note")
        steps += 1
        assert steps < 9
    assert steps == 2
    assert "7 jobs are back in line." in page
    entries = app.audit(about="dlq")
    assert [(entry.count, entry.note) for entry in entries] == [
        (7, "all"),
        (1, None),
        (2, "the bank is up"),
    ]
    for id in ids:
        app.cancel(id)
    assert "Choose a group" in site.page(site.get("/dead/replay").headers["location"][10:])
    assert "This group is gone" in site.page("/dead", group=group)
    site.act("/dead/replay", 422, job="x")
    site.act("/dead/replay", 422, group=group, after="x")


def test_the_audit_trail_is_shown(site: Site) -> None:
    with acting("anyone"):
        for _ in range(58):
            site.app.pause("audited")
    for verb in ("resume", "pause"):
        site.act(f"/queues/audited/{verb}")
    page = site.page("/audit", about="queue", name="audited")
    assert page.count("<td>anyone</td>") == 50
    older = re.search(r'href="/dashboard(/audit\?[^"]+)" rel="next"', page)
    assert older is not None
    assert site.page(older[1]).count("<td>anyone</td>") == 10
    assert "No entry matches" in site.page("/audit", by="nobody")
    site.page("/audit", 422, about="x")
    site.page("/audit", 422, before="x")


def test_a_reader_sees_all_and_changes_nothing(site: Site) -> None:
    """Last: from now on the server is closed."""
    app = site.app
    job_id = app.enqueue("order.fail", _payload(9)).job_id
    doubted = app.enqueue("order.charge", _payload(9)).job_id
    app.drain()
    key = app.create_token(["read"]).key
    assert site.post("/sign-in", data={"key": key}).status_code == 303
    paths = ["/jobs", f"/jobs/{job_id}", f"/jobs/{job_id}/replay", f"/jobs/{doubted}", "/doubt"]
    for path in (*paths, "/dead", f"/dead/replay?job={job_id}", "/audit"):
        main = site.page(path).partition("<main")[2]
        assert '<form method="post"' not in main, path
    csrf = re.findall(r'name="csrf" value="([0-9a-f]{64})"', site.page("/jobs"))[0]
    answered = {"job": doubted, "effect": "charge", "happened": "yes"}
    for path in (f"/jobs/{job_id}/cancel", f"/jobs/{job_id}/replay", "/doubt", "/dead/replay"):
        answer = site.post(path, data={**answered, "csrf": csrf})
        assert answer.status_code == 403, path
        assert "Only operators may do this" in answer.text, path
    assert found(app, job_id).state == "failed"
    assert found(app, doubted).state == "in_doubt"
