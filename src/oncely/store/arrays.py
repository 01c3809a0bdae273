"""Arrays as PostgreSQL takes them in its binary format.

The server reads them for less than text or JSON; and made all at once they cost Python little.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

_ARRAY: Final = struct.Struct("!iiiii").pack
"""Of one dimension, without nulls; the type of its elements; how many; counted from 1."""
_UUID: Final = 2950
_TEXT: Final = 25
_SIZE: Final = struct.Struct("!i").pack


def uuids(ids: Sequence[str]) -> bytes:
    """Each with its 16 bytes before it, which is written in the digits that they have."""
    size = "00000010"
    digits = size + size.join(ids)
    return _ARRAY(1, 0, _UUID, len(ids), 1) + bytes.fromhex(digits.replace("-", ""))


def texts(items: Sequence[str]) -> bytes:
    each = [item.encode() for item in items]
    sized = [b""] * (2 * len(each))
    sized[::2] = map(_SIZE, map(len, each))
    sized[1::2] = each
    return _ARRAY(1, 0, _TEXT, len(each), 1) + b"".join(sized)
