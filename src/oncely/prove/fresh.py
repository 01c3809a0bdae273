"""A delivery in a fresh interpreter: what differs from process to process differs there too, such
as `hash()` of a string, the order of a set, and what a module makes when it is imported."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import traceback
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from oncely.model.errors import InvalidInput
from oncely.prove import processes
from oncely.prove.clock import Clock
from oncely.prove.copies import Copies
from oncely.prove.loopback import LoopbackServer
from oncely.prove.plain import as_handler, target_of
from oncely.prove.seams import bring_in, debuggers, install, libraries, moved_clocks
from oncely.prove.watch import Hosts, Note, Watch
from oncely.surface.app import Oncely

if TYPE_CHECKING:
    from oncely.prove.delivery import Ground

_MAIN: Final = "from oncely.prove.fresh import main; main()"


class FreshStart(msgspec.Struct, frozen=True):
    """What the new process has to know."""

    url: str
    schema: str | None
    kind: str
    module: str
    name: str
    given: bytes
    """Retry, time-out and arguments, pickled: they may be of the user's own types."""
    copies: bytes
    hosts: Hosts
    ahead_seconds: float
    libraries: list[str]
    path: list[str]
    shows_output: bool


def why_not(ground: Ground, kind: str) -> str | None:
    """Why a fresh interpreter would not find the handler; None if it would."""
    handler = ground.app._registry._handlers[kind]
    target, given = target_of(handler.function)
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", "")
    if module == "__main__":
        return "the handler is defined in the program itself, not in a module"
    try:
        if _found(sys.modules[str(module)], name) is target:
            pickle.dumps((handler.retry, handler.timeout_seconds, given))
            return None
    except (KeyError, AttributeError, pickle.PicklingError):
        pass
    return "the handler cannot be imported: it is no function at the top of a module"


def begin(ground: Ground, line: int, kind: str) -> NoReturn:
    """In a forked child, which becomes the new interpreter."""
    handler = ground.app._registry._handlers[kind]
    target, given = target_of(handler.function)
    start = FreshStart(
        url=ground.app.url,
        schema=getattr(ground.app._engine, "schema", None),
        kind=kind,
        module=target.__module__,
        name=target.__qualname__,
        given=pickle.dumps((handler.retry, handler.timeout_seconds, given)),
        copies=pickle.dumps(ground.copies),
        hosts=ground.hosts,
        ahead_seconds=ground.clock.ahead_seconds,
        libraries=libraries(),
        path=sys.path,
        shows_output=ground.shows_output,
    )
    file = ground.copies.fresh
    file.write_bytes(msgspec.msgpack.encode(start))
    os.set_inheritable(line, True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("PYTHONHASHSEED", None)  # a fixed one would hide what differs by it
    os.execve(sys.executable, [sys.executable, "-c", _MAIN, str(file), str(line)], environment)


def main() -> NoReturn:
    start = msgspec.msgpack.decode(Path(sys.argv[1]).read_bytes(), type=FreshStart)
    line = int(sys.argv[2])
    os.set_inheritable(line, False)
    sys.path[:] = start.path
    for library in start.libraries:
        bring_in(library)
    copies: Copies = pickle.loads(start.copies)
    processes.begin(copies.alive)
    watch = Watch(start.hosts)
    watch.begin(line, None)
    try:
        _deliver(start, copies, watch)
    except BaseException:
        watch.tell(Note("end", traceback.format_exc().strip().splitlines()[-1]))
        os._exit(1)
    os._exit(0)


def _deliver(start: FreshStart, copies: Copies, watch: Watch) -> None:
    from oncely.prove.delivery import be_quiet, work

    if start.shows_output:
        debuggers.install(watch)
    else:
        be_quiet()
    clock = Clock()
    clock.advance(start.ahead_seconds)
    clock.begin()
    moved_clocks.install(clock, copies.everywhere)
    # Before the handler's module is imported: what that opens is redirected too.
    install(watch, copies)
    _refuse_servers()
    __import__(start.module)
    target = _found(sys.modules[start.module], start.name)
    retry, timeout, given = pickle.loads(start.given)
    app = Oncely(start.url) if start.schema is None else Oncely(start.url, schema=start.schema)
    app.job(start.kind, retry=retry, timeout=timeout)(
        target if given is None else as_handler(target, given, app)
    )
    asyncio.run(work(app, watch, copies, clock))
    watch.end()


def _refuse_servers() -> None:
    def refuse(self: Any, *_: Any) -> None:
        raise InvalidInput(
            f"its module makes a {type(self).__name__} when it is imported, which would be another "
            "one there"
        )

    server_class: Any = LoopbackServer
    server_class.__init__ = refuse


def _found(module: Any, name: str) -> Any:
    return reduce(getattr, name.split("."), module)
