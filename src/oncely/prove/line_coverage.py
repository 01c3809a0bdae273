"""Lines of the user's functions that ran in no delivery: what they do was not proved."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from types import CodeType, FrameType
from typing import Any

import msgspec

from oncely.flow.handler import Handler
from oncely.prove.timeline import short
from oncely.prove.watch import Message, Note, Watch, is_the_users


def install(watch: Watch, handlers: dict[str, Handler]) -> None:
    """In the child. What ran is told at its end, also if that is a crash of the prover's. Only
    while a handler runs: the interpreter tells of every call, which is slow."""
    ran: dict[str, set[str]] = {}
    by_file: dict[str, set[str] | None] = {}

    def enter(frame: FrameType, _event: str, _: Any) -> Any:
        code = frame.f_code
        try:
            found = by_file[code.co_filename]
        except KeyError:
            is_theirs = is_the_users(code.co_filename)
            found = ran.setdefault(code.co_filename, set()) if is_theirs else None
            by_file[code.co_filename] = found
        if found is None:
            return None
        found.add(_key(code))
        add = found.add

        def trace(inner: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                add(str(inner.f_lineno))
            return trace

        return trace

    def tell() -> None:
        for file, found in ran.items():
            watch.tell(Note("ran", file, sorted(found)))

    watch.before_end.append(tell)
    for kind, handler in handlers.items():
        traced = _traced(handler.function, enter, is_async=handler.is_async)
        handlers[kind] = msgspec.structs.replace(handler, function=traced)


def _traced(
    function: Callable[..., Any], enter: Callable[..., Any], *, is_async: bool
) -> Callable[..., Any]:
    @contextmanager
    def tracing() -> Iterator[None]:
        threading.settrace(enter)
        sys.settrace(enter)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)

    if is_async:

        async def arun(*args: Any) -> Any:
            with tracing():
                return await function(*args)

        return arun

    def run(*args: Any) -> Any:
        with tracing():
            return function(*args)

    return run


class LineCoverage:
    """What all deliveries of a proof have run."""

    def __init__(self) -> None:
        self._ran: dict[str, set[str]] = {}

    def add(self, messages: Sequence[Message]) -> None:
        for note in messages:
            if isinstance(note, Note) and note.what == "ran":
                self._ran.setdefault(note.text, set()).update(note.more)

    def not_run(self) -> list[str]:
        """As `file:4-6`. Of functions that were called in some delivery; others are not asked."""
        return [
            f"{short(file)}:{first}" if first == last else f"{short(file)}:{first}-{last}"
            for file, ran in sorted(self._ran.items())
            for first, last in _ranges(_missed(file, ran))
        ]


def _missed(file: str, ran: set[str]) -> set[int]:
    try:
        with open(file, "rb") as source:
            module = compile(source.read(), file, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return set()
    return {line for line in _lines(module, ran, is_called=False) if str(line) not in ran}


def _lines(code: CodeType, ran: set[str], *, is_called: bool) -> Iterator[int]:
    """Of the functions that were called, with those inside them; without the line of a `def`."""
    is_called = is_called or _key(code) in ran
    if is_called:
        for _, _, line in code.co_lines():
            if line and line != code.co_firstlineno:
                yield line
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _lines(inner, ran, is_called=is_called)


def _key(code: CodeType) -> str:
    return f"{code.co_qualname} {code.co_firstlineno}"


def _ranges(lines: set[int]) -> Iterator[tuple[int, int]]:
    for _, group in groupby(enumerate(sorted(lines)), lambda each: each[1] - each[0]):
        found = [line for _, line in group]
        yield found[0], found[-1]
