"""Templates, and how things are written on a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

_HERE: Final = Path(__file__).parent
STATIC: Final = _HERE / "static"
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR


@cache
def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "ago": ago,
        "count": count,
        "json": pretty,
        "seconds": seconds,
        "when": when,
    }
    return made


def render(template: str, data: Mapping[str, Any]) -> str:
    return environment().get_template(template).render(data)


@cache
def digest(name: str) -> str:
    """What a file of `static` is asked for with, so that it may be kept for ever."""
    return sha256((STATIC / name).read_bytes()).hexdigest()[:16]


def count(number: int) -> str:
    return f"{number:,}"


def pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def seconds(value: float | None) -> str:
    """A length of time in two figures or so: 3 ms, 1.4 s, 5 min, 3 h 20 min, 4 d 2 h."""
    if value is None:
        return "—"
    if value < 0.001:
        return f"{value * 1e6:.0f} µs" if value else "0 s"
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < _MINUTE:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    if value < _HOUR:
        return f"{value / _MINUTE:.0f} min"
    if value < _DAY:
        hours, rest = divmod(round(value / _MINUTE), 60)
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    days, rest = divmod(round(value / _HOUR), 24)
    return f"{days} d {rest} h" if rest else f"{days} d"


def ago(at: datetime | None) -> Markup:
    """How far a moment is from now, with the moment itself to point at."""
    if at is None:
        return Markup("—")
    away = (datetime.now(UTC) - at).total_seconds()
    near = abs(away) < 1
    text = "now" if near else f"{seconds(away)} ago" if away > 0 else f"in {seconds(-away)}"
    return _time(at, text)


def when(at: datetime | None) -> Markup:
    """The moment itself, in UTC."""
    if at is None:
        return Markup("—")
    return _time(at, at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"))


def _time(at: datetime, text: str) -> Markup:
    utc = at.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        utc.isoformat(), utc.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3], text
    )
