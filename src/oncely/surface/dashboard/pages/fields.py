"""Fields of forms, read. One that is left empty is None."""

from __future__ import annotations

from collections.abc import Mapping

from oncely.model.errors import InvalidInput
from oncely.model.flow import Rate
from oncely.model.keys import shown


def text(form: Mapping[str, str], name: str) -> str | None:
    return form.get(name, "").strip() or None


def whole(form: Mapping[str, str], name: str, label: str) -> int | None:
    given = text(form, name)
    if given is None:
        return None
    try:
        return int(given)
    except ValueError:
        raise InvalidInput(f"{label} is {shown(given)}; expected a whole number") from None


def amount(form: Mapping[str, str], name: str, label: str) -> float | None:
    given = text(form, name)
    if given is None:
        return None
    try:
        return float(given)
    except ValueError:
        raise InvalidInput(f"{label} is {shown(given)}; expected a number") from None


def rate(form: Mapping[str, str]) -> Rate | None:
    """Of the two fields `rate_count` and `rate_seconds`."""
    count = whole(form, "rate_count", "The rate's number of jobs")
    seconds = amount(form, "rate_seconds", "The rate's time")
    if count is None and seconds is None:
        return None
    if count is None or seconds is None:
        raise InvalidInput(
            "half of the rate is given; expected a number of jobs and a time in seconds, or neither"
        )
    return count, seconds


def short(number: float) -> str:
    """For a field that is sent back: as it was, without a point that says nothing."""
    return f"{number:.15g}"
