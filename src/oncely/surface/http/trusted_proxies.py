"""The client's own address and scheme, as proxies that are trusted say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from oncely.model.errors import InvalidInput
from oncely.model.keys import shown
from oncely.surface.asgi.exchange import header
from oncely.surface.asgi.types import ASGIApp, Receive, Scope, Send

Network = IPv4Network | IPv6Network
_PAIR: Final = re.compile(r"\s*([a-z]+)\s*=\s*(.*?)\s*", re.IGNORECASE)
_WITH_PORT: Final = re.compile(r"\[([^]]*)\](?::\d+)?|([\d.]+):\d+")


def networks(values: Iterable[str]) -> tuple[Network, ...]:
    return tuple(map(_network, values))


def _network(value: str) -> Network:
    try:
        return ip_network(value)
    except ValueError:
        raise InvalidInput(
            f"--trusted-proxy is {shown(value)}; expected an address or a network, such as "
            "10.0.0.0/8"
        ) from None


class TrustedProxies:
    """Around an ASGI app: a request that a trusted proxy passed on has the address and the scheme
    of the proxy's client."""

    def __init__(self, app: ASGIApp, trusted: Sequence[Network]) -> None:
        self._app = app
        self._trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if scope["type"] == "http" and client and self._is_trusted(client[0]):
            scope = {**scope, "client": (self._client(scope, client[0]), 0)}
            scope["scheme"] = forwarded_scheme(scope) or scope["scheme"]
        await self._app(scope, receive, send)

    def _client(self, scope: Scope, peer: str) -> str:
        """The last address that is not a trusted proxy's: what stands before it is the client's own
        word. A proxy adds to one of the two headers and passes on the other as it came, so where
        they differ neither is believed."""
        found = {
            self._last_untrusted(hops, peer)
            for hops in (_listed(scope, b"x-forwarded-for"), _forwarded(scope, "for"))
            if hops
        }
        return found.pop() if len(found) == 1 else peer

    def _last_untrusted(self, hops: Sequence[str], peer: str) -> str:
        address = peer
        for hop in reversed(hops):
            parsed = _address(hop)
            if parsed is None:
                break
            address = parsed
            if not self._is_trusted(address):
                break
        return address

    def _is_trusted(self, address: str) -> bool:
        parsed = _address(address)
        if parsed is None:
            return False
        found = ip_address(parsed)
        return any(found in network for network in self._trusted)


def forwarded_scheme(scope: Scope) -> str | None:
    """What the browser spoke to the first proxy. A forged header only keeps its sender's own cookie
    from being sent."""
    said = _listed(scope, b"x-forwarded-proto") or _forwarded(scope, "proto")
    scheme = said[0].lower() if said else None
    return scheme if scheme in ("http", "https") else None


def _listed(scope: Scope, name: bytes) -> list[str]:
    lines = (value.decode("latin-1") for value in header(scope, name))
    return [part.strip() for line in lines for part in line.split(",") if part.strip()]


def _forwarded(scope: Scope, wanted: str) -> list[str]:
    """The values of one parameter of the header Forwarded, in order."""
    found = []
    for element in _listed(scope, b"forwarded"):
        for pair in element.split(";"):
            match = _PAIR.fullmatch(pair)
            if match is not None and match[1].lower() == wanted:
                found.append(match[2].strip('"'))
    return found


def _address(text: str) -> str | None:
    """An address as a proxy writes it, with a port or without. IPv4 in IPv6 is IPv4."""
    match = _WITH_PORT.fullmatch(text)
    try:
        found = ip_address(text if match is None else match[1] or match[2])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if found.version == 6 else None
    return str(mapped or found)
