"""The commands put together, and how every run ends: quietly, or with one line and a code."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from cyclopts import App, CycloptsError, Group, UnusedCliTokensError

from oncely.model.errors import InvalidInput, KeyConflict, KeyWarning, OncelyError
from oncely.surface.cli.say import Screen, complain

FAILED: Final = 1
"""The input was good, and still it could not be done."""
BAD_INPUT: Final = 2
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141

COMMANDS: Final[dict[str, dict[str, str]]] = {
    "Jobs": {
        "enqueue": "enqueue",
        "jobs": "jobs",
        "show": "show",
        "cancel": "steer",
        "replay": "steer",
        "resolve": "resolve",
        "dlq": "dlq",
        "keys": "keys",
        "requests": "requests",
    },
    "Run": {
        "worker": "worker",
        "workers": "workers",
        "drill": "drill",
        "serve": "serve",
        "queues": "queues",
        "schedules": "schedules",
        "token": "token",
        "user": "user",
    },
    "Store": {"audit": "audit", "migrate": "upkeep", "doctor": "upkeep"},
    "See it work": {
        "demo": "demo.command",
        "bench": "bench.command",
        "prove": "prove",
        "torture": "torture.command",
    },
}
"""The commands of each group, with the module of each. A run imports the one that it needs."""


def build() -> App:
    app = App(
        name="oncely",
        help="A job queue: run it twice, it happens once.\n\n"
        "`oncely COMMAND --help` tells more of a command, with examples.",
        help_format="plaintext",
        version=_version,
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )
    for place, (title, commands) in enumerate(COMMANDS.items()):
        group = Group(title, sort_key=place)
        for order, (name, module) in enumerate(commands.items()):
            path = f"oncely.surface.cli.{module}:{name}"
            app.command(path, name=name, group=group, sort_key=order)
    flags = Group("Help", sort_key=len(COMMANDS))
    for flag in ("--help", "--version"):
        app[flag].group = (flags,)
    return app


def _version() -> str:
    from importlib.metadata import version

    return f"oncely {version('oncely')}"


def _parsable(tokens: Sequence[str]) -> list[str]:
    if not tokens or tokens[0] != "enqueue":
        return list(tokens)
    from oncely.surface.cli.enqueue import payload_from_stdin

    return payload_from_stdin(tokens)


def run(tokens: Sequence[str]) -> int:
    """Run one command line; the exit code."""
    as_json = "--json" in tokens
    try:
        with _plain_output(as_json=as_json):
            app = build()
            if not tokens or tokens[0] in ("--help", "-h"):
                app.resolved_commands()  # the list has a line of each
            code: int | None = app(_parsable(tokens), console=Screen())
            sys.stdout.flush()
        return code or 0
    except CycloptsError as error:
        complain("error", "InvalidInput", _what_was_wrong(error), as_json=as_json)
        return BAD_INPUT
    except OncelyError as error:
        complain("error", type(error).__name__, str(error), as_json=as_json)
        return BAD_INPUT if isinstance(error, InvalidInput | KeyConflict) else FAILED
    except BrokenPipeError:
        # Whoever reads our output has seen enough.
        _drop_output()
        return PIPE_CLOSED
    except OSError as error:
        _drop_output()
        complain("error", "OSError", str(error), as_json=as_json)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _drop_output() -> None:
    """The interpreter would try once more to write it, and complain again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _what_was_wrong(error: CycloptsError) -> str:
    if isinstance(error, UnusedCliTokensError):
        text = f"Unexpected: {' '.join(error.unused_tokens or ())}."
    else:
        text = str(error)
    return f"{text} See `{' '.join(('oncely', *(error.command_chain or ()), '--help'))}`."


@contextmanager
def _plain_output(*, as_json: bool) -> Iterator[None]:
    """Warnings in one line, and no character that the terminal's encoding could refuse."""

    def show_warning(
        message: Warning | str, category: type[Warning], *_: object, **__: object
    ) -> None:
        complain("warning", category.__name__, str(message), as_json=as_json)

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.simplefilter("always", KeyWarning)
        warnings.showwarning = show_warning
        yield
