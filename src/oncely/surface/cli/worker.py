"""`oncely worker`: run the handlers of an app, in one process or several."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from types import FrameType
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from oncely.flow.redaction import redaction
from oncely.model.errors import InvalidInput
from oncely.surface.app import Oncely
from oncely.surface.cli import end_process
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.say import complain

_CRASH_PAUSE_SECONDS: Final = 1.0


def worker(
    app: Annotated[str, Parameter(metavar="MODULE:APP", help="Such as shop.jobs:app.")],
    /,
    *,
    queues: Annotated[
        str | None, Parameter(metavar="NAMES", help="Comma between them. Without: all queues.")
    ] = None,
    concurrency: Annotated[
        int, Parameter(metavar="N", help="So many handlers at once, in each process.")
    ] = 16,
    processes: Annotated[int, Parameter(metavar="N", help="So many processes.")] = 1,
    lease_seconds: Annotated[
        float, Parameter(metavar="S", help="So long after a crash others take over.")
    ] = 60.0,
    poll_seconds: Annotated[
        float, Parameter(metavar="S", help="An idle worker looks at least this often.")
    ] = 1.0,
    grace_seconds: Annotated[
        float, Parameter(metavar="S", help="What running handlers get when it is told to stop.")
    ] = 30.0,
    drill: Annotated[
        float,
        Parameter(
            metavar="SHARE",
            help="Deliver this share of completed jobs once more, of kinds with drill=True.",
        ),
    ] = 0.0,
    options: Options = DEFAULTS,
) -> int:
    """Run the handlers of an app until SIGTERM or SIGINT.

    The store is the app's own; --url names it for an app that was made without
    one. A first signal lets running handlers end, a second one hands their jobs
    back at once. What happens is logged on standard error.

        $ oncely worker shop.jobs:app --queues payments,mail --concurrency 32
    """
    if processes < 1:
        raise InvalidInput(f"--processes is {processes}; expected 1 or more")
    if processes > 1:
        return fleet(processes)
    if options.url is not None:
        os.environ["ONCELY_URL"] = options.url
    if options.api_key is not None:
        os.environ["ONCELY_API_KEY"] = options.api_key
    log_to_stderr(as_json=options.json)
    found = load(app)
    if found.url.startswith("sqlite:"):
        found.migrate()  # a file that cannot be opened is an error; a server may come up later
    running = found.worker(
        queues=None if queues is None else [name for name in queues.split(",") if name],
        concurrency=concurrency,
        lease_seconds=lease_seconds,
        poll_seconds=poll_seconds,
        grace_seconds=grace_seconds,
        drill=drill,
    )
    running.run()
    if running.gave_up:
        # The interpreter would wait for the thread in which the store is still asked.
        end_process(0)
    return 0


def log_to_stderr(*, as_json: bool, quiet: Iterable[str] = ()) -> None:
    """`quiet` loggers only tell what is wrong."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if as_json else _Plain("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for name in quiet:
        logging.getLogger(name).setLevel(logging.WARNING)


class _Plain(logging.Formatter):
    def formatException(self, ei: Any) -> str:  # noqa: N802
        return redaction().text(super().formatException(ei))


class _Json(_Plain):
    def format(self, record: logging.LogRecord) -> str:
        told = getattr(record, "oncely", {"event": record.getMessage()})
        if record.exc_info:
            told = {**told, "error": self.formatException(record.exc_info)}
        return msgspec.json.encode({"at": self.formatTime(record), **told}).decode()


def load(place: str) -> Oncely:
    """The app at `module:name`, seen from the folder in which the command was given."""
    found = load_object(place, "the app")
    if not isinstance(found, Oncely):
        raise InvalidInput(f"{place} is a {type(found).__name__}; expected an Oncely app")
    return found


def load_object(place: str, option: str) -> Any:
    """What is at `module:name`, or at `module:name.attribute`."""
    module, _, name = place.partition(":")
    if not module or not name:
        raise InvalidInput(f"{option} is {place!r}; expected MODULE:NAME, such as shop.jobs:app")
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise InvalidInput(
            f"there is no module {error.name!r} here: give the command in the folder that has it"
        ) from None
    try:
        return attrgetter(name)(found)
    except AttributeError:
        raise InvalidInput(f"module {module!r} has no {name!r}") from None


def fleet(count: int, *, env: Mapping[str, str] | None = None, pass_fds: Sequence[int] = ()) -> int:
    """The same command in `count` processes. One that dies is replaced; signals go to all."""
    command = [sys.executable, "-m", "oncely.surface.cli", *_single(sys.argv[1:])]
    children: dict[int, subprocess.Popen[bytes]] = {}
    signals: list[int] = []

    def start(place: int) -> None:
        if signals:
            return
        child = subprocess.Popen(command, env=env, pass_fds=pass_fds)
        children[place] = child
        # Those that came while it was started went to the others only.
        for number in signals:
            child.send_signal(number)

    def forward(number: int, _: FrameType | None) -> None:
        signals.append(number)
        for child in list(children.values()):
            if child.poll() is None:
                child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    for place in range(count):
        start(place)
    while not signals:
        for place, child in list(children.items()):
            code = child.poll()
            if code is not None and not signals:
                if code == 2:
                    return code
                complain(
                    "warning",
                    "ProcessDied",
                    f"process {child.pid} ended with {code}; another takes its place",
                    as_json=False,
                )
                del children[place]
                time.sleep(_CRASH_PAUSE_SECONDS)
                start(place)
        time.sleep(0.1)
    # One that had only begun to start ends by the signal itself.
    codes = [child.wait() for child in children.values()]
    ended = (-signal.SIGTERM, -signal.SIGINT)
    return max((0 if code in ended else abs(code) for code in codes), default=0)


def _single(tokens: list[str]) -> list[str]:
    """The command line without --processes."""
    kept = []
    skip = False
    for token in tokens:
        if skip:
            skip = False
        elif token == "--processes":
            skip = True
        elif not token.startswith("--processes="):
            kept.append(token)
    return kept
