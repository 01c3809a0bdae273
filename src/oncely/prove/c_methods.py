"""Functions of CPython that are written in C, replaced behind every reference to them.

`datetime.now` is a method of a class that cannot be changed and that libraries compare by identity.
So its entry in the C table of methods is pointed to another function, in a forked child that never
puts it back. Only functions that raise nothing for good arguments are replaced here: an exception
cannot come through, and the caller gets a SystemError for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

try:
    import ctypes
except ImportError:  # pragma: no cover - a CPython that was built without libffi
    ctypes = None  # type: ignore[assignment]

_NO_ARGUMENTS: Final = 0x0004
_FAST_WITH_KEYWORDS: Final = 0x0080 | 0x0002
_OF_A_CLASS: Final = 0x0010
_kept: list[Any] = []
"""C has no reference to what it calls."""


def replace_c_function(function: Any, by: Callable[..., Any]) -> bool:
    """Whether it could. A class method is called with its class first."""
    if ctypes is None or sys.implementation.name != "cpython":
        return False
    entry = _method_entry(function)
    if entry is None:
        return False
    flags = entry.flags & ~_OF_A_CLASS
    passes_class = bool(entry.flags & _OF_A_CLASS)
    if flags == _NO_ARGUMENTS:
        thunk: Any = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
            lambda owner, _: _answer(by, (owner,) if passes_class else (), {})
        )
    elif flags == _FAST_WITH_KEYWORDS:
        thunk = ctypes.PYFUNCTYPE(
            ctypes.c_void_p,
            ctypes.py_object,
            ctypes.POINTER(ctypes.py_object),
            ctypes.c_ssize_t,
            ctypes.c_void_p,
        )(_with_keywords(by, passes_class=passes_class))
    else:
        return False
    _kept.append(thunk)
    entry.function = ctypes.cast(thunk, ctypes.c_void_p).value
    return True


def _with_keywords(by: Callable[..., Any], *, passes_class: bool) -> Callable[..., int | None]:
    def call(owner: Any, values: Any, count: int, names: int | None) -> int | None:
        words = ctypes.cast(names, ctypes.py_object).value if names else ()
        first = (owner,) if passes_class else ()
        named = {word: values[count + number] for number, word in enumerate(words)}
        return _answer(by, (*first, *(values[number] for number in range(count))), named)

    return call


def _answer(by: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> int | None:
    """The address of a new reference, or nothing, of which the interpreter makes a SystemError."""
    try:
        result = by(*args, **named)
    except Exception:
        return None
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(result))
    return id(result)


def _method_entry(function: Any) -> Any:
    """The table's entry of a builtin: found behind the head of the object, and checked by name."""
    if type(function) is not type(len):
        return None

    class MethodEntry(ctypes.Structure):
        _fields_ = (
            ("name", ctypes.c_char_p),
            ("function", ctypes.c_void_p),
            ("flags", ctypes.c_int),
            ("doc", ctypes.c_char_p),
        )

    place = ctypes.c_void_p.from_address(id(function) + object.__basicsize__)
    entry = MethodEntry.from_address(place.value) if place.value else None
    return entry if entry is not None and entry.name == function.__name__.encode() else None
