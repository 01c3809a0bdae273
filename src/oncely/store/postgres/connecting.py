"""How every connection of ours is made, so that one that is cut is noticed on both sides."""

from __future__ import annotations

import os
from typing import Any, Final

import psycopg

_CONNECT_SECONDS: Final = 10
_CONNECT_SECONDS_OF_SEVERAL: Final = 3
"""When several hosts are named, the next one is tried after that time."""
_NETWORK: Final = {
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
_VARIABLES: Final = {
    "connect_timeout": "PGCONNECT_TIMEOUT",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
}
# A session whose client is gone must not keep rows locked that others wait for.
WATCH_NETWORK: Final = (
    b"select set_config('tcp_keepalives_idle', '5', false), "
    b"set_config('tcp_keepalives_interval', '2', false), "
    b"set_config('tcp_keepalives_count', '3', false), "
    b"set_config('tcp_user_timeout', '10s', false)"
)
WATCH_CLIENT: Final = (
    WATCH_NETWORK + b", set_config('client_connection_check_interval', '2s', false)"
)
"""Refused with `InvalidParameterValue` where the server's system cannot tell."""


def connection_options(url: str) -> dict[str, Any]:
    """What the URL, or the environment, does not say itself."""
    given = psycopg.conninfo.conninfo_to_dict(url)
    hosts = given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST") or ""
    options: dict[str, Any] = {**_NETWORK, "connect_timeout": _CONNECT_SECONDS}
    if "," in str(hosts):
        options["connect_timeout"] = _CONNECT_SECONDS_OF_SEVERAL
        options["target_session_attrs"] = "read-write"
    return {
        name: value
        for name, value in options.items()
        if name not in given and not os.environ.get(_VARIABLES.get(name, ""))
    }
