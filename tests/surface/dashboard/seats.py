"""Somebody at the dashboard, in a real browser."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, ViewportSize

from oncely import Oncely
from oncely.surface.dashboard import live
from oncely.surface.dashboard.pages import PAGES
from tests.surface.dashboard.shop import HACKED, PASSWORD, Shop, fill
from tests.surface.http.server import in_thread
from tests.waiting import PATIENCE_SECONDS

PATIENCE_MS = PATIENCE_SECONDS * 1_000
DESKTOP: ViewportSize = {"width": 1280, "height": 900}


@dataclass(frozen=True)
class Place:
    """A server over a store with something on every page."""

    app: Oncely
    url: str
    shop: Shop

    def pages(self) -> list[str]:
        """Of every page that the site has, the path, and of a job's page one for each state that
        looks different."""
        paths: list[str] = []
        for page in PAGES:
            if page.method != "GET":
                continue
            filled = page.path.replace("{queue}", "payments")
            if filled == "/jobs/{id}":
                ids = (self.shop.completed, self.shop.failed, self.shop.in_doubt)
                paths += [filled.replace("{id}", id) for id in ids]
            else:
                paths.append(filled.replace("{id}", self.shop.failed))
        paths.append(f"/dead/replay?job={self.shop.failed}")
        unfilled = [path for path in paths if "{" in path]
        assert unfilled == [], "the walk has to know what to fill in"
        return paths


@contextmanager
def serving(url: str) -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch, Oncely(url) as app:
        patch.setenv("ONCELY_PUSH_ALLOW", "127.0.0.0/8")
        # A stream that ends is an error in the browser's console; a busy machine may take longer
        # for one page than a stream lives.
        patch.setattr(live, "_LIFE_SECONDS", math.inf)
        app.migrate()
        shop = fill(app)
        with in_thread(app) as address:
            yield Place(app, f"{address}/dashboard", shop)


@dataclass(frozen=True)
class Seat:
    """What goes wrong in the browser is kept in `wrong`."""

    place: Place
    context: BrowserContext
    page: Page
    wrong: list[str]

    def go(self, path: str) -> int:
        answer = self.page.goto(self.place.url + path)
        assert answer is not None
        return answer.status

    def fill(self, **fields: str) -> None:
        for name, value in fields.items():
            self.page.fill(f"main [name={name}]:visible", value)

    def press(self, label: str, within: str = "main") -> None:
        """A button, and the page after it."""
        button = self.page.locator(f"{within} >> button", has_text=re.compile(f"^{label}$"))
        with self.page.expect_navigation():
            button.first.click()

    def says(self, text: str) -> None:
        said = self.page.locator(".said").all_inner_texts()
        assert any(text in each for each in said), (text, said, self.page.url)

    def was_refused(self, text: str) -> None:
        """It says so, and the browser, which complains of the status, was right."""
        self.says(text)
        assert all("status of 4" in each for each in self.wrong), self.wrong
        self.wrong.clear()

    def nothing_is_wrong(self) -> None:
        """No error in the console, no probe that came alive."""
        if self.page.url != "about:blank":
            assert not self.page.evaluate(HACKED), "a probe came alive"
        assert self.wrong == [], self.wrong


@contextmanager
def seat(place: Place, browser: Browser, **options: Any) -> Iterator[Seat]:
    """With nothing wrong at the end."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "console",
        lambda said: wrong.append(f"{said.text} at {page.url}") if said.type == "error" else None,
    )

    def asked(dialog: Dialog) -> None:
        """Only what a page of ours asks before it changes something."""
        if dialog.type != "confirm":
            wrong.append(dialog.message)
        dialog.accept()

    page.on("dialog", asked)
    one = Seat(place, context, page, wrong)
    try:
        yield one
        one.nothing_is_wrong()
    finally:
        context.close()


@dataclass(frozen=True)
class Visit:
    """What the parts of the test share: one browser, and an operator who has signed in."""

    place: Place
    browser: Browser
    operator: Seat

    @contextmanager
    def seat(self) -> Iterator[Seat]:
        """The operator's: to open a new one takes the browser longer than most parts do."""
        self.operator.wrong.clear()
        self.operator.page.set_viewport_size(DESKTOP)
        yield self.operator
        self.operator.nothing_is_wrong()


@contextmanager
def signed_in(place: Place, browser: Browser) -> Iterator[Visit]:
    """As a person would, with a slip."""
    with seat(place, browser) as one:
        one.go("/queues")
        assert "/sign-in" in one.page.url
        one.fill(name="ada", password="not that one at all")
        one.press("Sign in")
        one.was_refused("The name or the password is wrong.")
        one.fill(password=PASSWORD)
        one.press("Sign in")
        assert one.page.url == f"{place.url}/queues"
        yield Visit(place, browser, one)
