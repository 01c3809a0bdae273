"""Where the store is: the URL checked, its password kept to ourselves, the store opened."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

from oncely.model.errors import InvalidInput, OncelyError, StoreUnavailable
from oncely.store.sqlite.engine import is_store
from oncely.store.url import sqlite_path
from oncely.surface.app import Oncely
from oncely.surface.base import DEFAULT_URL
from oncely.surface.cli.options import Options

_QUERY: Final = re.compile(r"\?\w+=")
_PARAMETER: Final = re.compile(r"((?:ssl)?password=)([^&]*)", re.IGNORECASE)
_ESCAPED: Final = re.compile(r"(?:[^@/%]|%[0-9A-Fa-f]{2})*")


@contextmanager
def opened(options: Options, *, create: bool = False) -> Iterator[Oncely]:
    """The store; with `create`, a missing SQLite file is made."""
    url = address(options.url)
    path = file_of(url)
    if path is not None and not create and not is_store(path):
        raise StoreUnavailable(
            f"there is no store at {path.absolute()}: check --url or $ONCELY_URL, or make one "
            "with `oncely migrate`"
        )
    try:
        with Oncely(url, schema=options.schema, api_key=options.api_key) as app:
            yield app
    except OncelyError as error:
        error.args = (hide(str(error), url),)
        raise


def address(given: str | None) -> str:
    url = given if given is not None else os.environ.get("ONCELY_URL") or DEFAULT_URL
    for secret in _secrets(url):
        # The database's library would take it apart in the wrong place, and show a part of it.
        if not _ESCAPED.fullmatch(secret) or b"\0" in unquote_to_bytes(secret):
            raise InvalidInput(
                f"the password in the store's URL {masked(url)} has a character that must be "
                "written as its code: @ as %40, / as %2F, % as %25"
            )
    return url


def file_of(url: str) -> Path | None:
    """The file of an SQLite store, or None on another engine."""
    scheme, _, rest = url.partition("://")
    if scheme != "sqlite":
        return None
    path = sqlite_path(rest, url)
    if path is None:
        raise InvalidInput(
            f"the store {url} is in memory and would end with this command: name a file, such as "
            f"{DEFAULT_URL}"
        )
    return path


def masked(url: str) -> str:
    """The URL as it may be shown."""
    if url.startswith("sqlite:"):
        return url
    start, end = _password(url)
    hidden = f"{url[:start]}***{url[end:]}" if start < end else url
    return _PARAMETER.sub(r"\1***", hidden)


def hide(text: str, url: str) -> str:
    return text.replace(url, masked(url)).replace(repr(url)[1:-1], masked(url))


def _secrets(url: str) -> list[str]:
    if url.startswith("sqlite:"):
        return []
    start, end = _password(url)
    return [url[start:end], *(match.group(2) for match in _PARAMETER.finditer(url))]


def _password(url: str) -> tuple[int, int]:
    """Where the password stands. It ends at the last @ that can be meant, so that one with an @
    or a / of its own is not taken for a host, of which a part would then be shown."""
    begin = url.find("://") + 3 if "://" in url else 0
    query = _QUERY.search(url, begin)
    end = url.rfind("@", begin, query.start() if query else len(url))
    if end < 0 and query and "/" not in url[begin : query.start()]:
        end = url.rfind("@", begin)
    colon = url.find(":", begin, max(begin, end))
    return (colon + 1, end) if colon >= 0 else (0, 0)
