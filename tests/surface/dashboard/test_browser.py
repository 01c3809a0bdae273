"""The dashboard in a real browser, on both engines: every page, each action of its forms.

One test for each engine, of many parts: they share the browser, the server and the store.
"""

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import ViewportSize

from oncely import Oncely
from oncely.store import requests
from tests.crash.load import TORTURE
from tests.engine.steps import sql
from tests.surface.dashboard import chromium
from tests.surface.dashboard.seats import DESKTOP, PATIENCE_MS, Visit, seat, serving, signed_in
from tests.surface.dashboard.shop import HACKED, PASSWORD, PROBE

PHONE: ViewportSize = {"width": 390, "height": 844}
AXE_SCRIPT = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
AXE = """async (options) => (await axe.run(document, {...options, preload: false})).violations
    .filter(each => ["serious", "critical"].includes(each.impact))
    .map(each => each.id + ": " + each.nodes.map(node => node.html).slice(0, 3).join(" "))"""
LINKS = "all => all.map(each => each.href.split('#')[0])"

PARTS: list[Callable[[Visit], None]] = []


def part(check: Callable[[Visit], None]) -> Callable[[Visit], None]:
    PARTS.append(check)
    return check


@pytest.mark.timeout(600)
def test_in_a_browser(url: str, subtests: pytest.Subtests) -> None:
    # The browser comes last: while it is there, its event loop is that of this thread.
    with (
        serving(url) as place,
        chromium.running() as browser,
        signed_in(place, browser) as visit,
    ):
        for check in PARTS:
            if check in SAME_ON_BOTH and url.startswith("postgres"):
                continue
            with subtests.test(check.__name__):
                check(visit)


@part
def every_page_can_be_read_by_everyone(visit: Visit) -> None:
    """Nothing serious for axe, in light and in dark; no probe runs; nothing is wider than a
    phone. That does not depend on the engine: on PostgreSQL, pages are read without JavaScript."""
    if visit.place.app.url.startswith("postgres"):
        _pages_can_be_read_without_javascript(visit)
        return
    found: dict[str, list[str]] = {}
    links: set[str] = set()
    with visit.seat() as one:
        for number, path in enumerate(visit.place.pages()):
            one.page.set_viewport_size(DESKTOP)
            assert one.go(path) == 200, path
            assert one.page.locator("h1").count() == 1, path
            one.page.evaluate(AXE_SCRIPT)
            one.page.emulate_media(color_scheme="light")
            problems: list[str] = one.page.evaluate(AXE, {"resultTypes": ["violations"]})
            if number % 3 == 0 or TORTURE > 1:
                one.page.emulate_media(color_scheme="dark")
                problems += one.page.evaluate(AXE, {"runOnly": ["color-contrast"]})
            one.page.set_viewport_size(PHONE)
            width = one.page.evaluate("document.documentElement.scrollWidth")
            if width > PHONE["width"]:
                problems.append(f"{width} pixels wide on a phone")
            if one.page.evaluate(HACKED):
                problems.append("a probe came alive")
            if problems:
                found[path] = problems
            links |= set(one.page.eval_on_selector_all("a", LINKS))
        assert found == {}
        dead = [link for link in links if one.context.request.get(link).status != 200]
        assert dead == [], "every link leads somewhere"


def _pages_can_be_read_without_javascript(visit: Visit) -> None:
    state = visit.operator.context.storage_state()
    context = visit.browser.new_context(storage_state=state, java_script_enabled=False)
    context.set_default_timeout(PATIENCE_MS)
    with context:
        page = context.new_page()
        for path in visit.place.pages():
            answer = page.goto(visit.place.url + path)
            assert answer is not None
            assert answer.status == 200, path
            assert page.locator("main h1").inner_text().strip(), path
            assert "hunter2-hunter2" not in page.content(), path
        page.goto(f"{visit.place.url}/queues")
        assert page.locator("main table").count() == 1


@part
def the_keyboard_is_enough(visit: Visit) -> None:
    with visit.seat() as one:
        one.go("/queues")
        one.page.keyboard.press("Tab")
        skip = one.page.locator(".skip")
        assert skip.evaluate("each => each === document.activeElement")
        assert (skip.bounding_box() or {"x": -1})["x"] >= 0, "it can be seen when it has the focus"
        one.page.keyboard.press("Enter")
        one.page.keyboard.press("Tab")
        inside = "document.getElementById('main').contains(document.activeElement)"
        assert one.page.evaluate(inside)
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert one.page.evaluate(outline) == "solid", "where the focus is can be seen"
        one.page.keyboard.press("/")
        assert one.page.evaluate("document.activeElement.type") == "search"


@part
def light_and_dark_can_be_changed_and_stay(visit: Visit) -> None:
    with visit.seat() as one:
        one.go("/queues")
        ground = "getComputedStyle(document.documentElement).backgroundColor"
        before = one.page.evaluate(ground)
        one.page.click("#theme")
        after = one.page.evaluate(ground)
        assert after != before
        one.go("/groups")
        assert one.page.evaluate(ground) == after


@part
def jobs_are_found_by_filter_id_and_key(visit: Visit) -> None:
    shop = visit.place.shop
    with visit.seat() as one:
        one.go("/jobs")
        one.page.select_option("[name=state]", "cancelled")
        one.press("Show")
        assert one.page.locator("main tbody tr").count() == 1
        assert shop.cancelled in one.page.content()
        for text in (shop.running, "order:1:charge"):
            one.page.fill(".search input", text)
            with one.page.expect_navigation():
                one.page.keyboard.press("Enter")
            wanted = shop.running if text == shop.running else shop.in_doubt
            assert one.page.url.endswith(f"/jobs/{wanted}"), text


@part
def a_job_is_cancelled_with_a_reason(visit: Visit) -> None:
    app, job_id = visit.place.app, visit.place.shop.pending
    with visit.seat() as one:
        one.go(f"/jobs/{job_id}")
        one.page.click("summary:has-text('Cancel')")
        one.fill(note=f"nobody wants it {PROBE}")
        one.press("Cancel the job")
        one.says("The job is cancelled.")
        assert (getattr(app.get(job_id), "state", None)) == "cancelled"
        assert f"nobody wants it {PROBE}" in one.page.inner_text("main")
        one.go("/audit")
        row = one.page.inner_text("main tbody tr >> nth=0")
        assert "ada" in row
        assert "nobody wants it" in row


@part
def doubt_is_settled_by_the_two_answers(visit: Visit) -> None:
    app = visit.place.app
    first, second = (job.job_id for job in app.jobs(state="in_doubt"))
    with visit.seat() as one:
        one.go("/doubt")
        card = f".card:has-text('{first}')"
        one.page.fill(f"{card} [name=note]", f"found in the bank's log {PROBE}")
        one.page.fill(f"{card} [name=result]", "not json")
        one.press("It happened", card)
        one.was_refused("is not JSON")
        one.page.fill(f"{card} [name=result]", '{"charge": 7}')
        one.press("It happened", card)
        one.says("on record as having happened")
        job = app.get(first)
        assert job is not None
        assert (job.state, job.effects[0].state, job.effects[0].result) == (
            "pending",
            "done",
            {"charge": 7},
        )
        one.go(f"/jobs/{second}")
        one.press("It did not", ".doubt")
        one.says("on record as not having happened")
        job = app.get(second)
        assert job is not None
        assert (job.state, job.effects) == ("pending", [])
        assert "Nothing is in doubt" in one.page.inner_text("main")


@part
def a_request_in_doubt_is_answered_for(visit: Visit) -> None:
    app = visit.place.app

    def begin(key: str) -> None:
        mark = requests.Mark(scope="", key=key, owner=1, hold_us=0, keep_us=3_600_000_000)
        app._engine.run(
            lambda _: requests.begin(mark, "1", run_unknown=False, again=False), "write"
        )

    begin(f"made {PROBE}")
    begin("not made")
    with visit.seat() as one:
        one.go("/doubt")
        made = "section:has-text('made '):not(:has-text('not made'))"
        one.page.fill(f"{made} [name=status]", "201")
        one.page.fill(f"{made} [name=body]", '{"id": 7}')
        one.press("It happened", made)
        assert [each.key for each in app.requests_in_doubt()] == ["not made"]
        one.press("It did not", "section:has-text('not made')")
        assert app.requests_in_doubt() == []


@part
def dead_letters_are_replayed_one_some_and_all_of_a_group(visit: Visit) -> None:
    app = visit.place.app

    def failed() -> int:
        return len(app.jobs(state="failed"))

    before = failed()
    with visit.seat() as one:
        one.go(f"/jobs/{visit.place.shop.failed}")
        one.page.click("text=Replay…")
        one.press("Replay")
        one.says("back in line")
        assert failed() == before - 1
        one.go("/dead")
        one.page.click("tbody a >> nth=0")
        one.page.check("[name=job] >> nth=0")
        one.press("Replay the chosen…")
        assert "Nothing is in the ledger" in one.page.inner_text("main")
        one.press("Replay")
        one.says("1 job is back in line.")
        assert failed() == before - 2
        one.page.click("text=Replay… >> nth=0")
        one.press("Replay")
        one.page.wait_for_selector(".said.good")
        one.says("2 jobs are back in line.")
        assert failed() == before - 4


@part
def the_overview_is_live(visit: Visit) -> None:
    """A job that comes while the page is open shows without a reload."""
    with visit.seat() as one:
        one.go("/")
        visit.place.app.enqueue("late.comer", queue="late")
        one.page.wait_for_selector("main >> text=late")


@part
def queues_are_steered(visit: Visit) -> None:
    def queue(name: str) -> Any:
        return next(each for each in visit.place.app.queues() if each.name == name)

    with visit.seat() as one:
        one.go("/queues")
        one.press("Pause", "tr:has-text('mail')")
        one.says("Queue mail is paused")
        assert queue("mail").paused
        one.press("Resume", "tr:has-text('mail')")
        assert not queue("mail").paused
        one.fill(name="reports")
        one.press("Open")
        one.fill(concurrency="4", rate_count="10")
        one.press("Set limits")
        one.was_refused("half of the rate is given")
        assert one.page.input_value("[name=concurrency]") == "4", "what was typed stays"
        one.fill(rate_seconds="60")
        one.press("Set limits")
        one.says("The limits are set.")
        assert (queue("reports").concurrency, queue("reports").rate) == (4, (10, 60.0))
        one.page.select_option("[name=retry]", "own")
        one.fill(max_attempts="3", base="5", timeout="12.5")
        one.page.check("[name=require_key]")
        one.press("Set policy")
        reports = queue("reports")
        assert (reports.retry.max_attempts, reports.retry.base) == (3, 5.0)
        assert (reports.timeout, reports.require_key, reports.retry.jitter) == (12.5, True, True)
        one.fill(url="http://127.0.0.1:9/hook")
        one.press("Set push target")
        secret = one.page.inner_text(".said code")
        assert secret.startswith("whsec_")
        assert queue("reports").push.url == "http://127.0.0.1:9/hook"
        one.go("/queues/reports")
        assert secret not in one.page.content()
        one.press("Remove push target")
        assert queue("reports").push is None


@part
def groups_are_limited(visit: Visit) -> None:
    def group(key: str) -> Any:
        return next(each for each in visit.place.app.groups() if each.key == key)

    with visit.seat() as one:
        one.go("/groups")
        one.fill(key="tenant:7", concurrency="2")
        one.press("Set limits")
        one.says("Group tenant:7 has new limits.")
        assert group("tenant:7").concurrency == 2
        one.press("Pause", "tr:has-text('hacked')")
        assert group(PROBE).paused
        one.press("Resume", "tr:has-text('hacked')")
        assert not group(PROBE).paused
        one.page.click("tr:has-text('hacked') a")
        assert one.page.input_value("main [name=key]") == PROBE
        assert one.page.input_value("main [name=rate_seconds]") == "60"


@part
def schedules_are_steered(visit: Visit) -> None:
    app = visit.place.app
    with visit.seat() as one:
        one.go("/schedules")
        one.press("Pause")
        assert app.schedules()[0].paused
        one.press("Resume")
        assert not app.schedules()[0].paused
        before = len(app.jobs(kind="digest"))
        one.press("Fire now")
        fired = app.jobs(kind="digest")
        assert len(fired) == before + 1
        assert one.page.url.endswith(fired[0].job_id)
        with Oncely(app.url) as earlier:
            earlier.schedule("gone-from-the-code", cron="0 9 * * *")
            earlier.schedules()
        long_ago = "0" if app.url.startswith("sqlite") else "to_timestamp(0)"
        sql(
            app,
            f"update oncely.schedule set seen_at = {long_ago} where name = 'gone-from-the-code'",
        )
        one.go("/schedules")
        one.press("Remove", "tr:has-text('gone-from-the-code')")
        assert [each.name for each in app.schedules()] == ["digest"]


@part
def tokens_are_made_rotated_and_revoked(visit: Visit) -> None:
    app = visit.place.app
    with visit.seat() as one:
        one.go("/tokens")
        one.page.uncheck("[name=scope][value=read]")
        one.press("Make token")
        one.was_refused("expected one or more of")
        one.page.check("[name=scope][value=publish]")
        one.fill(name="till", queues="mail, payments")
        one.press("Make token")
        key = one.page.inner_text("#key")
        made = next(each for each in app.tokens() if each.name == "till")
        assert (made.scopes, made.queues) == (("publish",), ("mail", "payments"))
        assert made.token_id in key
        one.go("/tokens")
        assert key not in one.page.content()
        row = f"tr:has-text('{made.token_id}')"
        one.page.select_option(f"{row} select", "0")
        one.press("Rotate", row)
        heir = one.page.inner_text("#key").split("_")[1]
        assert [each.valid for each in app.tokens() if each.name == "till"] == [False, True]
        one.press("Revoke", f"tr:has-text('{heir}')")
        assert [each.valid for each in app.tokens() if each.name == "till"] == [False, False]


@part
def users_are_made_changed_and_removed(visit: Visit) -> None:
    app = visit.place.app
    with visit.seat() as one:
        one.go("/users")
        form = "form:has-text('Add user')"
        one.page.fill(f"{form} [name=name]", "bob")
        one.page.fill(f"{form} [name=password]", PASSWORD)
        one.press("Add user")
        one.says("User bob can sign in now.")
        row = "tr:has-text('bob')"
        one.page.select_option(f"{row} select", "operator")
        one.press("Change", row)
        assert {each.name: each.role for each in app.users()}["bob"] == "operator"
        one.page.fill(f"{row} [name=password]", f"{PASSWORD} of bob")
        one.press("Change", row)
        with seat(visit.place, visit.browser) as other:
            other.go("/queues")
            other.fill(name="bob", password=f"{PASSWORD} of bob")
            other.press("Sign in")
            assert other.page.url.endswith("/queues")
        one.press("Remove", row)
        assert "bob" not in [each.name for each in app.users()]


@part
def to_sign_out_leads_to_the_sign_in(visit: Visit) -> None:
    key = visit.place.app.create_token(["read"], name="passer-by").key
    with seat(visit.place, visit.browser) as one:
        one.go("/groups")
        one.page.click("summary")
        one.fill(key=key)
        one.press("Sign in with the key")
        assert "read only" in one.page.inner_text("header")
        assert one.page.locator("main form button").count() == 0, "nothing to change with"
        one.press("Sign out", "header")
        assert one.page.url.endswith("/sign-in")
        one.go("/groups")
        assert "/sign-in" in one.page.url


@part
def charts_are_drawn_and_go_on_by_themselves(visit: Visit) -> None:
    if visit.place.app.url.startswith("postgres"):
        return  # what the store tells is the same there
    with visit.seat() as one:
        last = one.page.locator(".plot canvas").nth(3)
        one.go("/")
        last.wait_for()
        visit.place.app.enqueue("seen.live", queue="live", delay=3_600)
        one.page.get_by_role("row", name="seen.live").wait_for()
        last.wait_for()


SAME_ON_BOTH = (the_keyboard_is_enough, light_and_dark_can_be_changed_and_stay)
"""Nothing of these depends on the engine."""
