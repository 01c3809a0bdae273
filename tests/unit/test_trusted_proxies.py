"""Which address a request comes from, by what trusted proxies say."""

import asyncio
from typing import Any

import pytest

from oncely import InvalidInput
from oncely.surface.asgi.types import Receive, Scope, Send
from oncely.surface.http.trusted_proxies import TrustedProxies, forwarded_scheme, networks

PROXY = "10.0.0.1"


def seen(peer: str | None, *headers: tuple[str, str]) -> tuple[Any, str]:
    found: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found.append(scope)

    scope = {
        "type": "http",
        "scheme": "http",
        "client": None if peer is None else (peer, 1),
        "headers": [(name.encode(), value.encode()) for name, value in headers],
    }
    proxies = TrustedProxies(app, networks(["10.0.0.0/8", "fd00::/8"]))
    asyncio.run(proxies(scope, None, None))  # type: ignore[arg-type]
    client = found[0]["client"]
    return (None if client is None else client[0]), found[0]["scheme"]


@pytest.mark.parametrize(
    ("headers", "address"),
    [
        ((), PROXY),
        ((("x-forwarded-for", "203.0.113.5"),), "203.0.113.5"),
        ((("x-forwarded-for", "192.0.2.1, 203.0.113.5:4711, 10.9.9.9"),), "203.0.113.5"),
        ((("x-forwarded-for", "192.0.2.1"), ("x-forwarded-for", "203.0.113.5")), "203.0.113.5"),
        ((("x-forwarded-for", "::ffff:203.0.113.5"),), "203.0.113.5"),
        ((("x-forwarded-for", "10.1.1.1, 10.2.2.2"),), "10.1.1.1"),
        ((("x-forwarded-for", "203.0.113.5, unknown, 10.2.2.2"),), "10.2.2.2"),
        ((("x-forwarded-for", "unknown"),), PROXY),
        ((("forwarded", 'for="[2001:db8::1]:4711";proto=https, For=fd00::1'),), "2001:db8::1"),
        ((("forwarded", "by=x;for=203.0.113.5"),), "203.0.113.5"),
        ((("forwarded", "for=_hidden"),), PROXY),
        ((("forwarded", "for=192.0.2.1"), ("x-forwarded-for", "203.0.113.5")), PROXY),
        ((("forwarded", "for=192.0.2.1"), ("x-forwarded-for", "192.0.2.1")), "192.0.2.1"),
        ((("x-real-ip", "192.0.2.1"),), PROXY),
    ],
)
def test_the_last_address_that_is_no_proxy_is_the_clients(
    headers: tuple[tuple[str, str], ...], address: str
) -> None:
    assert seen(PROXY, *headers)[0] == address


@pytest.mark.parametrize("peer", ["203.0.113.9", "2001:db8::9", "testclient", None])
def test_nobody_else_is_believed(peer: str | None) -> None:
    told = seen(peer, ("x-forwarded-for", "192.0.2.1"), ("x-forwarded-proto", "https"))
    assert told == (peer, "http")


@pytest.mark.parametrize(
    ("header", "value", "scheme"),
    [
        ("x-forwarded-proto", "https", "https"),
        ("x-forwarded-proto", " HTTPS , http", "https"),
        ("x-forwarded-proto", "http, https", "http"),
        ("x-forwarded-proto", "", None),
        ("x-forwarded-proto", "gopher", None),
        ("forwarded", 'for=192.0.2.1; proto="https", for=10.0.0.1;proto=http', "https"),
        ("forwarded", "for=192.0.2.1", None),
    ],
)
def test_the_scheme_is_what_the_browser_spoke(header: str, value: str, scheme: str | None) -> None:
    assert forwarded_scheme({"headers": [(header.encode(), value.encode())]}) == scheme
    assert seen(PROXY, (header, value))[1] == (scheme or "http")


@pytest.mark.parametrize("value", ["", "x", "10.0.0.1/8", "10.0.0.0/33", "*", "proxy.example"])
def test_what_is_no_network_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match=r"--trusted-proxy is .*; expected an address"):
        networks([value])
