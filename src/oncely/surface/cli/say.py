"""How the command line speaks: answers on standard output, everything else on standard error."""

from __future__ import annotations

import sys
import unicodedata
from typing import Any, Final, Literal

import msgspec
from rich.console import Console
from rich.text import Text

from oncely.model.transition import State

STATE_STYLES: Final[dict[State, str]] = {
    "scheduled": "cyan",
    "pending": "blue",
    "running": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "bright_black",
    "in_doubt": "magenta",
}


class Screen(Console):
    """Standard output, with colours on a terminal only."""

    def on_broken_pipe(self) -> None:
        """Left to `program.run`, like every other end of a command."""
        raise BrokenPipeError


def screen() -> Screen:
    """For answers. Long lines are left whole, so no id is ever cut."""
    return Screen(markup=False, emoji=False, highlight=False, soft_wrap=True)


def answer(value: Any) -> None:
    """One line of JSON. Times are ISO 8601 in UTC."""
    write(msgspec.json.encode(value).decode())


def write(text: str) -> None:
    """For machines: always in UTF-8."""
    data = memoryview(text.encode() + b"\n")
    while data:  # under PYTHONUNBUFFERED a write may take only a part
        data = data[sys.stdout.buffer.write(data) :]
    sys.stdout.buffer.flush()


def complain(what: Literal["error", "warning"], name: str, message: str, *, as_json: bool) -> None:
    # What was typed need not be text: bytes that are none arrive as lone surrogates.
    line = " ".join(message.split("\n")).encode(errors="backslashreplace").decode()
    if as_json:
        text = msgspec.json.encode({what: name, "message": line}).decode()
    else:
        text = visible(f"oncely: {line}" if what == "error" else f"oncely: warning: {line}")
    print(text, file=sys.stderr)


def visible(text: str) -> str:
    """Control characters spelled out, so that what others wrote cannot steer the terminal."""
    return "".join(ascii(char)[1:-1] if _steers(char) else char for char in text)


def _steers(char: str) -> bool:
    return char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Cs")


def state_text(state: State) -> Text:
    return Text(state, style=STATE_STYLES[state])


def pretty(value: Any) -> str:
    """A JSON value over several lines; a text as it is."""
    if isinstance(value, str):
        return visible(value)
    return visible(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
