"""Signing in: who gets in, what the cookie is like, and what other sites cannot do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest

from oncely import Oncely
from tests.surface.http.server import Client, in_thread
from tests.waiting import wait_until

PASSWORD = "correct horse battery"
CSRF = re.compile(r'name="csrf" value="([0-9a-f]{64})"')


class Site(Client):
    """A browser's worth of cookies."""

    def __init__(self, url: str, app: Oncely) -> None:
        super().__init__(f"{url}/dashboard")
        self.app = app

    def sign_in(self, **fields: str) -> int:
        return self.post("/sign-in", data=fields).status_code

    def csrf(self) -> str:
        found = CSRF.search(self.get("/queues").text)
        assert found is not None
        return found[1]

    def shows(self, path: str = "/queues") -> bool:
        return self.get(path).status_code == 200


def session_cookie(answer: httpx2.Response) -> str:
    cookies: list[str] = answer.headers.get_list("set-cookie")
    [found] = [each for each in cookies if "device" not in each.partition("=")[0]]
    return found


@contextmanager
def serving(folder: str) -> Iterator[Site]:
    with (
        Oncely(f"sqlite:///{folder}/jobs.db") as app,
        in_thread(app) as url,
        Site(url, app) as site,
    ):
        yield site


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with an operator and a reader."""
    with serving(str(tmp_path_factory.mktemp("closed"))) as site:
        site.app.create_user("ada", PASSWORD, role="operator")
        site.app.create_user("ron", PASSWORD, role="reader")
        yield site


@pytest.fixture
def site(store: Site) -> Iterator[Site]:
    """The same, as somebody who has not signed in."""
    store.cookies.clear()
    yield store
    store.cookies.clear()


def test_without_a_user_and_a_token_it_is_open_to_this_machine_and_to_no_other_site(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with serving(str(tmp_path_factory.mktemp("open"))) as site:
        assert site.shows()
        assert site.post("/queues/a/pause").status_code == 303
        port = site.base_url.port
        for headers in (
            {"host": "rebound.example"},
            {"origin": "http://other.example"},
            {"origin": f"http://127.0.0.1:{port or 0 + 1}1"},
            {"origin": "null"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        ):
            assert site.post("/queues/b/pause", headers=headers).status_code == 403, headers
        assert site.get("/queues", headers={"host": "rebound.example"}).status_code == 403
        assert [queue.name for queue in site.app.queues()] == ["a"]
        site.app.create_user("ada", PASSWORD, role="operator")
        site.app.remove_user("ada")
        wait_until(lambda: not site.shows())
        assert site.get("/v1/queues").status_code == 404
        assert site.get(str(site.base_url.join("/v1/queues"))).status_code == 401


def test_it_leads_to_the_sign_in_and_from_there_to_what_was_asked_for(site: Site) -> None:
    asked = site.get("/queues?x=1&y=2")
    assert asked.status_code == 303
    place = asked.headers["location"]
    assert place == "/dashboard/sign-in?next=/queues%3Fx%3D1%26y%3D2"
    form = site.get(place.removeprefix("/dashboard"))
    assert 'value="/queues?x=1&amp;y=2"' in form.text
    done = site.post(
        "/sign-in", data={"name": "ada", "password": PASSWORD, "next": "/queues?x=1&y=2"}
    )
    assert done.headers["location"] == "/dashboard/queues?x=1&y=2"
    assert site.shows()


@pytest.mark.parametrize("place", ["//other.example", "/\\other.example", "https://o.example", "x"])
def test_it_leads_nowhere_else(site: Site, place: str) -> None:
    fields = {"name": "ron", "password": PASSWORD, "next": place}
    assert site.post("/sign-in", data=fields).headers["location"] == "/dashboard/"


def test_the_cookie_is_a_safe_one_and_only_its_hash_is_kept(site: Site) -> None:
    done = site.post("/sign-in", data={"name": "ada", "password": PASSWORD})
    cookie = session_cookie(done)
    assert cookie.startswith("oncely_session=")
    assert cookie.endswith("; Max-Age=604800; Path=/dashboard; HttpOnly; SameSite=Lax")
    session = cookie.partition("=")[2].partition(";")[0]
    path = site.app.url.removeprefix("sqlite:///")
    for suffix in ("", "-wal"):
        with open(path + suffix, "rb") as file:
            assert session.encode() not in file.read()
    for headers in (
        {"x-forwarded-proto": "https"},
        {"x-forwarded-proto": "https, http"},
        {"forwarded": "for=192.0.2.1;proto=https"},
    ):
        over_tls = site.post(
            "/sign-in", data={"name": "ada", "password": PASSWORD}, headers=headers
        )
        cookie = session_cookie(over_tls)
        assert cookie.startswith("__Host-oncely=")
        assert cookie.endswith("; Max-Age=604800; Path=/; Secure; HttpOnly; SameSite=Lax")
    for wrong in ("", "x", session[:-1], session.swapcase()):
        site.cookies.clear()
        assert site.get("/queues", headers={"cookie": f"oncely_session={wrong}"}).status_code == 303


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"name": "ada"},
        {"name": "ada", "password": PASSWORD[:-1]},
        {"name": "ron ", "password": ""},
        {"name": "nobody", "password": PASSWORD},
        {"name": "nobody", "password": "a password that nobody has"},
        {"key": ""},
        {"key": "oncely_0123456789ab_" + "x" * 43},
    ],
)
def test_what_is_wrong_gets_nobody_in_and_does_not_say_which_part(
    site: Site, fields: dict[str, str]
) -> None:
    refused = site.post("/sign-in", data=fields)
    assert refused.status_code == 401
    assert "set-cookie" not in refused.headers
    assert not site.shows()
    if "name" in fields:
        assert "The name or the password is wrong." in refused.text


def test_keys_get_in_by_their_scopes(site: Site) -> None:
    read = site.app.create_token(["read"], name="pager").key
    admin = site.app.create_token(["publish", "admin"]).key
    for refused, reason in (
        (site.app.create_token(["publish", "work"]).key, "scope read"),
        (site.app.create_token(["admin"], queues=["mail"]).key, "only for mail"),
    ):
        answer = site.post("/sign-in", data={"key": refused})
        assert (answer.status_code, reason in answer.text) == (403, True)
    assert site.sign_in(key=f" {read}\n") == 303
    assert "token:pager" in site.get("/queues").text
    assert site.post("/queues/a/pause", data={"csrf": site.csrf()}).status_code == 403
    assert site.sign_in(key=admin) == 303
    assert site.post("/queues/a/pause", data={"csrf": site.csrf()}).status_code == 303
    site.app.revoke_token(admin.split("_")[1])
    wait_until(lambda: not site.shows())


def test_a_reader_looks_and_changes_nothing(site: Site) -> None:
    assert site.sign_in(name="ron", password=PASSWORD) == 303
    page = site.get("/queues/limited")
    assert page.status_code == 200
    assert "Set limits" not in page.text
    csrf = {"csrf": site.csrf()}
    before = site.app.queues()
    for path in ("/queues/limited/limits", "/tokens", "/users", "/groups"):
        assert site.post(path, data={**csrf, "concurrency": "1"}).status_code == 403, path
    assert site.app.queues() == before


def test_a_form_needs_the_sessions_own_token(site: Site) -> None:
    assert site.sign_in(name="ada", password=PASSWORD) == 303
    mine = site.csrf()
    site.cookies.clear()
    assert site.sign_in(name="ada", password=PASSWORD) == 303
    assert site.csrf() != mine
    before = site.app.queues()
    for sent in ({}, {"csrf": ""}, {"csrf": mine}):
        assert site.post("/queues/forged/pause", data=sent).status_code == 403
    right = {"csrf": site.csrf()}
    for headers in ({"origin": "http://other.example"}, {"sec-fetch-site": "cross-site"}):
        assert site.post("/queues/forged/pause", data=right, headers=headers).status_code == 403
    assert site.app.queues() == before
    header = {"x-csrf-token": right["csrf"], "sec-fetch-site": "same-origin"}
    assert site.post("/queues/own/pause", headers=header).status_code == 303
    assert site.post("/sign-out").status_code == 403, "nor can another site sign one out"


def test_to_sign_out_ends_the_session_for_whoever_has_the_cookie(site: Site) -> None:
    assert site.sign_in(name="ada", password=PASSWORD) == 303
    cookie = {"cookie": f"oncely_session={site.cookies['oncely_session']}"}
    done = site.post("/sign-out", data={"csrf": site.csrf()})
    assert done.status_code == 303
    assert any("oncely_session=; Max-Age=0" in each for each in done.headers.get_list("set-cookie"))
    site.cookies.clear()
    assert site.get("/queues", headers=cookie).status_code == 303


def test_a_removed_user_is_out_and_a_change_of_role_holds(site: Site) -> None:
    site.app.create_user("eve", PASSWORD, role="operator")
    assert site.sign_in(name="eve", password=PASSWORD) == 303
    assert "Set limits" in site.get("/queues/x").text
    site.app.set_user("eve", role="reader")
    wait_until(lambda: "Set limits" not in site.get("/queues/x").text)
    site.app.remove_user("eve")
    wait_until(lambda: not site.shows())
    assert site.post("/queues/x/pause").status_code == 401


def test_live_parts_are_for_those_who_signed_in(site: Site) -> None:
    assert site.get("/live?topic=overview").status_code == 401


def test_every_answer_has_the_headers_that_guard_it(site: Site) -> None:
    for path in ("/sign-in", "/queues", "/nothing", "/static/dashboard.css"):
        headers = site.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
    assert site.get("/sign-in").headers["cache-control"] == "no-store"


def test_whoever_guesses_has_to_wait(site: Site) -> None:
    for _ in range(5):
        assert site.sign_in(name="target", password="wrong wrong wrong") == 401
    assert site.sign_in(name="target", password="wrong wrong wrong") == 429
    assert site.sign_in(name="ron", password=PASSWORD) == 303, "others do not"
