"""What is never shown: the values of fields whose names say that they are secret."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

HIDDEN: Final = "•••"
NAMES: Final = (
    "account_number",
    "api_key",
    "apikey",
    "authorization",
    "card",
    "cookie",
    "credential",
    "cvc",
    "cvv",
    "iban",
    "passphrase",
    "passwd",
    "password",
    "private_key",
    "secret",
    "ssn",
    "token",
)
_DEPTH_LIMIT: Final = 64


class Redact:
    """A field is hidden if its name contains one of `names`, whatever its case, dashes and
    underscores. It looks into JSON that is text, as payloads of other systems often are."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = tuple(_plain(name) for name in (*NAMES, *names) if _plain(name))
        # In a text that is not JSON, such as a traceback: name=value, "name": "value", name: value.
        words = "|".join(_loose(name) for name in self._names)
        self._pair = re.compile(
            rf"""(?ix)
            ( (?:{words}) [\w-]{{0,40}} ["']? \s{{0,9}} [:=] \s{{0,9}} )
            (
                "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*'
                | (?:bearer\s+|basic\s+)? [^\s,;&)}}\]]+
            )"""
        )

    def __call__(self, value: Any) -> Any:
        return self._seen(value, _DEPTH_LIMIT)

    def text(self, text: str) -> str:
        """Of a message or a traceback."""
        return self._pair.sub(lambda found: found[1] + HIDDEN, text)

    def _seen(self, value: Any, depth: int) -> Any:
        if depth == 0:
            return HIDDEN
        if isinstance(value, dict):
            return {
                key: HIDDEN if self._hides(key) else self._seen(each, depth - 1)
                for key, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._seen(each, depth - 1) for each in value]
        if isinstance(value, str):
            return self._seen_text(value, depth)
        return value

    def _seen_text(self, text: str, depth: int) -> str:
        if text.lstrip()[:1] in ("{", "["):
            try:
                return json.dumps(self._seen(json.loads(text), depth - 1), ensure_ascii=False)
            except (ValueError, RecursionError):
                pass
        return self.text(text)

    def _hides(self, key: object) -> bool:
        plain = _plain(str(key))
        return any(name in plain for name in self._names)


def _plain(name: str) -> str:
    return "".join(each for each in name.lower() if each.isalnum())


def _loose(plain: str) -> str:
    return "[_-]?".join(re.escape(each) for each in plain)
