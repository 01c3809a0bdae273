"""The commands put together, and how every run ends: quietly, or with one line and a code."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Final

from cyclopts import App, CycloptsError, Group, UnusedCliTokensError

from oncely.model.errors import InvalidInput, KeyConflict, KeyWarning, OncelyError
from oncely.surface.cli.audit import audit
from oncely.surface.cli.bench.command import bench
from oncely.surface.cli.demo.command import demo
from oncely.surface.cli.dlq import dlq
from oncely.surface.cli.drill import drill
from oncely.surface.cli.enqueue import enqueue, payload_from_stdin
from oncely.surface.cli.jobs import jobs
from oncely.surface.cli.keys import keys
from oncely.surface.cli.prove import prove
from oncely.surface.cli.queues import queues
from oncely.surface.cli.requests import requests
from oncely.surface.cli.resolve import resolve
from oncely.surface.cli.say import Screen, complain
from oncely.surface.cli.schedules import schedules
from oncely.surface.cli.serve import serve
from oncely.surface.cli.show import show
from oncely.surface.cli.steer import cancel, replay
from oncely.surface.cli.token import token
from oncely.surface.cli.torture.command import torture
from oncely.surface.cli.upkeep import doctor, migrate
from oncely.surface.cli.user import user
from oncely.surface.cli.worker import worker
from oncely.surface.cli.workers import workers

FAILED: Final = 1
"""The input was good, and still it could not be done."""
BAD_INPUT: Final = 2
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141

COMMANDS: Final[dict[str, tuple[Callable[..., Any], ...]]] = {
    "Jobs": (enqueue, jobs, show, cancel, replay, resolve, dlq, keys, requests),
    "Run": (worker, workers, drill, serve, queues, schedules, token, user),
    "Store": (audit, migrate, doctor),
    "See it work": (demo, bench, prove, torture),
}


def build() -> App:
    app = App(
        name="oncely",
        help="A job queue: run it twice, it happens once.\n\n"
        "`oncely COMMAND --help` tells more of a command, with examples.",
        help_format="plaintext",
        version=f"oncely {version('oncely')}",
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )
    for place, (title, commands) in enumerate(COMMANDS.items()):
        group = Group(title, sort_key=place)
        for order, command in enumerate(commands):
            app.command(command, group=group, sort_key=order)
    flags = Group("Help", sort_key=len(COMMANDS))
    for flag in ("--help", "--version"):
        app[flag].group = (flags,)
    return app


def run(tokens: Sequence[str]) -> int:
    """Run one command line; the exit code."""
    as_json = "--json" in tokens
    try:
        with _plain_output(as_json=as_json):
            code: int | None = build()(payload_from_stdin(tokens), console=Screen())
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
