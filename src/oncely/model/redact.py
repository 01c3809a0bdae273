"""What is never shown: the values of fields whose names say that they are secret.

The screens of the dashboard, the command line and our logs all go by this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

HIDDEN: Final = "•••"
NAMES: Final = (
    "access_key",
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
    "jwt",
    "passphrase",
    "passwd",
    "password",
    "private_key",
    "pwd",
    "secret",
    "signature",
    "ssn",
    "token",
)
"""A field is hidden if its name contains one of these."""
WORDS: Final = frozenset({"auth", "otp", "pass", "pin", "session", "sessionid"})
"""The same for whole words of a name, as in `dbPass` and `otp_code`, but not in `author`."""
_DEPTH_LIMIT: Final = 64
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAMING: Final = ("name", "key", "header")
_VALUES: Final = ("value", "values")
_QUOTED: Final = r"""
    "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*'
"""
_VALUE: Final = re.compile(
    rf"""(?ix)
    {_QUOTED} | (?:(?:apikey|basic|bearer|digest|key|negotiate|token)\s+)? [^\s,;&)}}\]]+"""
)
_BEFORE_VALUE: Final = (
    # In a text that is not JSON, such as a traceback: name=value, "name": "value", name: value.
    re.compile(r"""(?x) (?<![\w-]) (?P<name>\w[\w-]{0,80}) ["']? \s{0,9} [:=] \s{0,9}"""),
    # A field that is named beside its value, as headers often are.
    re.compile(
        rf"""(?ix)
        (["'])(?:{"|".join(_NAMING)})\1 \s{{0,9}} : \s{{0,9}} (["'])(?P<name>[^"'\n]{{1,80}})\2
        \s{{0,9}} , \s{{0,9}} (["'])values?\4 \s{{0,9}} : \s{{0,9}}"""
    ),
    # An option of a command line.
    re.compile(r"(?x) (?<![\w-]) --? (?P<name>\w[\w-]{0,80}) \s{1,9} (?!-)"),
)
_HEADER: Final = re.compile(
    rf"""(?ix)
    ( (?:authorization|cookie) ["']? \s{{0,9}} : \s{{0,9}} ) (?:{_QUOTED} | [^\r\n]+)"""
)
_USER_INFO: Final = re.compile(r"(://)[^\s/?#@\"'<>]{1,1024}(?=@)")
_PEM: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{1,40}-----.*?(?:-----END [A-Z0-9 ]{1,40}-----|\Z)", re.DOTALL
)
_PLAIN_SEGMENT: Final = re.compile(r".{0,7}|[a-z]+(?:[._-][a-z]+)*")


class Redact:
    """Hides by name, whatever its case, dashes and underscores; `names` come on top. It looks into
    JSON that is text, as payloads of other systems often are."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = tuple(_plain(name) for name in (*NAMES, *names) if _plain(name))

    def __call__(self, value: Any) -> Any:
        return self._seen(value, _DEPTH_LIMIT)

    def text(self, text: str) -> str:
        """Of a message or a traceback."""
        text = _PEM.sub(HIDDEN, text)
        text = _USER_INFO.sub(rf"\1{HIDDEN}", text)
        text = _HEADER.sub(rf"\1{HIDDEN}", text)
        for pattern in _BEFORE_VALUE:
            text = self._without_values(pattern, text)
        return text

    def url(self, url: str) -> str:
        return masked_url(url)

    def _without_values(self, before_value: re.Pattern[str], text: str) -> str:
        parts: list[str] = []
        done = 0
        for found in before_value.finditer(text):
            if found.start() < done or not self._hides(found["name"]):
                continue
            value = _VALUE.match(text, found.end())
            if value is not None:
                parts += [text[done : found.end()], HIDDEN]
                done = value.end()
        return "".join([*parts, text[done:]])

    def _seen(self, value: Any, depth: int) -> Any:
        if depth == 0:
            return HIDDEN
        if isinstance(value, dict):
            named = any(isinstance(n := value.get(key), str) and self._hides(n) for key in _NAMING)
            return {
                key: HIDDEN
                if self._hides(key) or (named and key in _VALUES)
                else self._seen(each, depth - 1)
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
                value = json.loads(text)
                seen = self._seen(value, depth - 1)
                return text if seen == value else json.dumps(seen, ensure_ascii=False)
            except (ValueError, RecursionError):
                pass
        return self.text(text)

    def _hides(self, key: object) -> bool:
        name = str(key)
        plain = _plain(name)
        return any(each in plain for each in self._names) or any(
            word.lower() in WORDS for word in _WORD.findall(name)
        )


def masked_url(url: str) -> str:
    """The URL without what may be a secret in it: user info, the values of its query, and segments
    of its path that are not plain words."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    if not parts.netloc or "@" in parts.netloc:
        return HIDDEN
    path = "/".join(
        segment if _PLAIN_SEGMENT.fullmatch(segment) else HIDDEN
        for segment in parts.path.split("/")
    )
    fields = [field.partition("=") for field in parts.query.split("&")] if parts.query else []
    query = "&".join(f"{name}={HIDDEN}" if equals else HIDDEN for name, equals, _ in fields)
    return f"{parts.scheme}://{parts.netloc}{path}{'?' if query else ''}{query}"


def _plain(name: str) -> str:
    return "".join(each for each in name.lower() if each.isalnum())
