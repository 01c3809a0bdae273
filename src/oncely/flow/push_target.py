"""Where a push may go: to public addresses, and to those that `$ONCELY_PUSH_ALLOW` names.

A name is resolved, every address it has is checked, and the connection goes to one of exactly
these: who checks and then lets the library resolve again is led elsewhere by the second answer.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final
from urllib.parse import urlsplit

import msgspec

from oncely.model.errors import InvalidInput, PushRefused
from oncely.model.keys import shown

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Sequence[str]]
ALLOW_VARIABLE: Final = "ONCELY_PUSH_ALLOW"
_URL: Final = re.compile(r"[!#-;=?-Z_a-z~\[\]%]+")
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)

_PRIVATE_V4: Final = [
    IPv4Network(net)
    for net in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "168.63.129.16/32",  # looks public, but is the metadata service of a cloud
    )
]
_PUBLIC_V6: Final = IPv6Network("2000::/3")
_PRIVATE_V6: Final = [
    IPv6Network(net)
    for net in (
        "2001::/23",  # Teredo, benchmarks, ORCHID
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "3fff::/20",
    )
]
_NAT64: Final = IPv6Network("64:ff9b::/96")
_ISATAP: Final = (0x0000_5EFE, 0x0200_5EFE)


class Place(msgspec.Struct, frozen=True):
    """A URL taken apart. `target` is what stands in the request line, `authority` in `Host`."""

    tls: bool
    host: str
    port: int
    authority: str
    target: str


def check_target(url: str, resolve: Resolve | None = None) -> Place:
    """PushRefused unless a push may go there now. When it is sent this is asked again."""
    place = parse(url)
    addresses(place, resolve)
    return place


def parse(url: str) -> Place:
    if not isinstance(url, str) or not _URL.fullmatch(url):
        raise _refused(url, "expected http(s)://host/path in plain ASCII")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _refused(url, "expected http(s)://host:port/path") from None
    if parts.scheme not in ("http", "https"):
        raise _refused(url, "expected http:// or https://")
    if "@" in parts.netloc:
        raise _refused(url, "user info is not allowed in it: the signature says who sends")
    if "#" in url:
        raise _refused(url, "a fragment is never sent: leave it out")
    host = parts.hostname or ""
    if port == 0 or not _is_host(host, bracketed="[" in parts.netloc):
        raise _refused(
            url,
            "expected the name of a host, or an address in its usual form, such as 192.0.2.1 or "
            "[2001:db8::1]",
        )
    tls = parts.scheme == "https"
    query = f"?{parts.query}" if parts.query else ""
    return Place(
        tls, host, port or (443 if tls else 80), parts.netloc.lower(), f"{parts.path or '/'}{query}"
    )


def addresses(place: Place, resolve: Resolve | None = None) -> list[str]:
    """The addresses of the place, each of them checked. One that may not be is one too many."""
    allowed = allowed_networks()
    try:
        found = list((resolve or _resolve)(place.host, place.port))
    except (OSError, UnicodeError) as error:
        raise PushRefused(
            f"the push target {place.host!r} cannot be resolved ({error}): check the name"
        ) from None
    if not found:
        raise PushRefused(f"the push target {place.host!r} has no address: check the name")
    for text in found:
        if not is_allowed(text, allowed):
            raise PushRefused(
                f"the push target {place.host!r} leads to an address that is not a public address: "
                f"use another, or name its network in ${ALLOW_VARIABLE}"
            )
    return found


def allowed_networks() -> list[Network]:
    """What the operator allows beyond the public addresses."""
    text = os.environ.get(ALLOW_VARIABLE, "")
    try:
        return [ip_network(part) for part in re.split(r"[,\s]+", text) if part]
    except ValueError as error:
        raise InvalidInput(
            f"${ALLOW_VARIABLE} is {shown(text)} ({error}); expected networks such as "
            "10.1.0.0/16,fd00::/8"
        ) from None


def is_allowed(text: str, allowed: Sequence[Network]) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return _is_allowed(address, allowed)


def _is_allowed(address: Address, allowed: Sequence[Network]) -> bool:
    if any(address in network for network in allowed):
        return True
    if isinstance(address, IPv4Address):
        return address.is_global and not any(address in network for network in _PRIVATE_V4)
    inside = IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.ipv4_mapped is not None or address in _NAT64:
        return _is_allowed(inside, allowed)
    if int(address) >> 32 & 0xFFFF_FFFF in _ISATAP and not _is_allowed(inside, allowed):
        return False
    return address in _PUBLIC_V6 and not any(address in network for network in _PRIVATE_V6)


def _is_host(host: str, *, bracketed: bool) -> bool:
    if bracketed:
        try:
            return "%" not in host and bool(IPv6Address(host))
        except ValueError:
            return False
    labels = host.removesuffix(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):
        # Decimal, octal, hex and short spellings mean other addresses to other libraries.
        try:
            return bool(IPv4Address(host))
        except ValueError:
            return False
    return len(host) <= 253 and all(_LABEL.fullmatch(label) for label in labels)


def _resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _refused(url: object, told: str) -> PushRefused:
    hidden = re.sub(r"//.*@", "//***@", url) if isinstance(url, str) else url
    return PushRefused(f"the push url is {shown(hidden)}; {told}")
