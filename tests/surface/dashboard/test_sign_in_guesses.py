"""Guesses of passwords: counted before they are checked, by all servers, and in nobody's way."""

import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from oncely import Oncely
from oncely.store import sign_in_guesses
from oncely.store.sign_in_guesses import Place
from oncely.surface import password
from oncely.surface.http.service import Settings
from oncely.surface.http.trusted_proxies import networks
from tests.engine.steps import sql
from tests.surface.dashboard.test_sign_in import PASSWORD, Site, serving
from tests.surface.http.server import as_process, in_thread

WRONG = "wrong wrong wrong"
AT_ONCE = 30


@pytest.fixture
def small_hashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Real hashes that take little memory and time: for what does not depend on how long a check
    takes."""
    monkeypatch.setattr(password, "_MEMORY_KIB", 64)
    password._hasher.cache_clear()
    password._nobody.cache_clear()
    yield
    password._hasher.cache_clear()
    password._nobody.cache_clear()


small = pytest.mark.usefixtures("small_hashes")


@pytest.fixture
def site(app: Oncely) -> Iterator[Site]:
    app.create_user("ada", PASSWORD, role="operator")
    with in_thread(app) as url, Site(url, app) as site:
        yield site


def kept(app: Oncely) -> int:
    [(found,)] = sql(app, "select count(*) from oncely.sign_in_guess")
    return int(found)


def test_of_guesses_that_come_at_once_only_some_are_checked(site: Site) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = Counter(
            pool.map(lambda _: site.sign_in(name="ada", password=WRONG), range(AT_ONCE))
        )
    assert found == {401: 5, 429: AT_ONCE - 5}


@small
def test_all_servers_count_together(site: Site) -> None:
    with Oncely(site.app.url) as other, in_thread(other) as url, Site(url, other) as second:
        for each in (site, second, site, second, site):
            assert each.sign_in(name="ada", password=WRONG) == 401
        for each in (site, second):
            assert each.sign_in(name="ada", password=PASSWORD) == 429


@small
def test_names_that_do_not_exist_keep_nobody_out(tmp_path: Path) -> None:
    """Behind a proxy all clients have one address."""
    with serving(str(tmp_path)) as site:
        site.app.create_user("ada", PASSWORD, role="operator")
        for n in range(31):
            assert site.sign_in(name=f"nobody {n}", password=WRONG) == 401
        assert site.sign_in(name="ada", password=PASSWORD) == 303


@small
def test_the_owner_of_an_account_passes_its_lock_in_a_browser_of_hers(site: Site) -> None:
    site.app.create_user("ron", PASSWORD, role="reader")
    done = site.post("/sign-in", data={"name": "ada", "password": PASSWORD})
    [cookie] = [each for each in done.headers.get_list("set-cookie") if "device" in each]
    assert cookie.endswith("; Max-Age=15552000; Path=/dashboard; HttpOnly; SameSite=Strict")
    device = cookie.partition("=")[2].partition(";")[0]

    def sign_in(name: str, password: str, device: str) -> int:
        site.cookies.clear()
        headers = {"cookie": f"oncely_device={device}"}
        fields = {"name": name, "password": password}
        return site.post("/sign-in", data=fields, headers=headers).status_code

    for name in ("ada", "ron"):
        for _ in range(5):
            assert sign_in(name, WRONG, "") == 401
        for forged in ("", device[:-1] + "!", device.partition(".")[0]):
            assert sign_in(name, PASSWORD, forged) == 429
    assert sign_in("ron", PASSWORD, device) == 429, "it is a browser of ada's, not of ron's"
    assert sign_in("ada", PASSWORD, device) == 303
    for _ in range(5):
        assert sign_in("ada", WRONG, device) == 401
    assert sign_in("ada", PASSWORD, device) == 429, "a stolen cookie gives few guesses"


@small
def test_a_new_password_ends_the_lock_and_what_browsers_had(site: Site) -> None:
    assert site.sign_in(name="ada", password=PASSWORD) == 303
    device = site.cookies["oncely_device"]
    site.cookies.clear()
    for turn in range(2):
        for _ in range(5):
            assert site.sign_in(name="ada", password=WRONG) == 401
        assert site.sign_in(name="ada", password=PASSWORD) == 429
        if turn == 0:
            site.app.set_user("ada", password=PASSWORD[::-1])
            site.cookies.set("oncely_device", device)
    site.cookies.clear()
    site.app.set_user("ada", password=PASSWORD)
    assert site.sign_in(name="ada", password=PASSWORD) == 303


@small
def test_what_is_too_long_is_refused_before_anything_is_kept(site: Site) -> None:
    assert site.sign_in(name="a" * 256, password=PASSWORD) == 422
    assert site.sign_in(name="ada", password="x" * 8_192) == 413
    assert site.sign_in(key="x" * 8_192) == 413
    assert site.sign_in(name="a\0b", password=PASSWORD) == 422
    assert kept(site.app) == 0
    assert site.sign_in(name="a" * 255, password=WRONG) == 401


@small
@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded"])
def test_behind_a_trusted_proxy_each_client_is_counted_by_its_own_address(
    app: Oncely, header: str
) -> None:
    app.create_user("ada", PASSWORD, role="operator")
    prefix = "for=" if header == "forwarded" else ""
    settings = Settings(trusted_proxies=networks(["127.0.0.1", "10.0.0.0/8"]))
    with in_thread(app, settings) as url, Site(url, app) as site:

        def sign_in(password: str, *hops: str) -> int:
            site.cookies.clear()
            headers = {header: ", ".join(f"{prefix}{hop}" for hop in hops)}
            fields = {"name": "ada", "password": password}
            return site.post("/sign-in", data=fields, headers=headers).status_code

        for n in range(5):  # what the client says of itself changes nothing
            assert sign_in(WRONG, f"192.0.2.{n}", "203.0.113.5", "10.1.2.3") == 401
        assert sign_in(PASSWORD, "203.0.113.5") == 429
        assert sign_in(PASSWORD, "203.0.113.6", "10.1.2.3") == 303


def test_an_account_takes_50_guesses_from_all_addresses_together(app: Oncely) -> None:
    app.create_user("ada", PASSWORD, role="operator")
    app.create_user("ron", PASSWORD, role="reader")
    settings = Settings(trusted_proxies=networks(["127.0.0.1"]))
    with in_thread(app, settings) as url, Site(url, app) as site:
        addresses = (f"203.0.113.{n}" for n in range(256))

        def sign_in(name: str, password: str, device: str = "") -> httpx2.Response:
            site.cookies.clear()
            headers = {
                "x-forwarded-for": next(addresses),
                "cookie": f"oncely_device={device}",
            }
            return site.post("/sign-in", data={"name": name, "password": password}, headers=headers)

        device = sign_in("ada", PASSWORD).cookies["oncely_device"]
        for _ in range(2):
            assert sign_in("ada", WRONG).status_code == 401
        [(account,)] = sql(app, "select place from oncely.sign_in_guess where guesses = 2")
        for _ in range(47):  # as the page does it, without the time that a password takes
            app._engine.run(lambda _: sign_in_guesses.reserve([Place(account, 50)]), "transaction")
        assert sign_in("ada", WRONG).status_code == 401, "the 50th"
        for _ in range(2):
            locked = sign_in("ada", PASSWORD)
            assert locked.status_code == 429
            assert "too many wrong passwords" in locked.text
        assert sign_in("ron", PASSWORD).status_code == 303
        assert sign_in("ada", PASSWORD, device).status_code == 303


@pytest.mark.parametrize("trusted", [True, False])
def test_only_a_proxy_that_the_server_was_told_of_is_believed(
    sqlite_url: str, trusted: bool
) -> None:
    with Oncely(sqlite_url) as app:
        app.create_user("ada", PASSWORD, role="operator")
        options = ["--trusted-proxy", "127.0.0.0/8"] if trusted else []
        with as_process(sqlite_url, *options) as server, Site(server.url, app) as site:
            for n in range(6):
                fields = {"name": "ada", "password": WRONG}
                headers = {"x-forwarded-for": f"203.0.113.{n}"}
                answer = site.post("/sign-in", data=fields, headers=headers)
                assert answer.status_code == (401 if trusted or n < 5 else 429)
            _, log = server.end(signal.SIGTERM)
    assert ("203.0.113.5" in log) == trusted
