"""Who may use a store that has neither a user nor a token: clients on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

from oncely.surface.asgi.types import Scope

ONLY_THIS_MACHINE: Final = (
    "The store has neither a token nor a user, so it is open to clients on this machine only, and "
    "not through a proxy. `oncely token create` makes a token, `oncely user create` a user; "
    "--open-to-everyone, or open_to_everyone=True, opens it to every client. In a test, use "
    'TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 50000)).'
)
_FORWARDING: Final = frozenset({"forwarded", "via", "x-real-ip"})


def is_local(scope: Scope, headers: Mapping[str, str]) -> bool:
    """Whether the client is known to be on this machine: its address is loopback, and no proxy
    passed the request on. A request without an address came over a Unix socket, which is where
    proxies are connected, so its client is not known."""
    client = scope.get("client")
    return (
        client is not None
        and is_loopback(client[0])
        and not any(name in _FORWARDING or name.startswith("x-forwarded-") for name in headers)
    )


@lru_cache(maxsize=256)
def is_loopback(address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found.is_loopback


@lru_cache(maxsize=256)
def is_address(host: str) -> bool:
    """Whether the header Host has an address. A name in it can be that of a page of another site,
    which its name server points at this machine; an address cannot."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ip_address(name))
    except ValueError:
        return False
