"""The fingerprint of a payload: equal for equal content, whatever its form."""

import copy
import dataclasses
import hashlib
import os
import random
import subprocess
import sys
import unicodedata
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from oncely import key
from oncely.model.payload import decode, encode, fingerprint

NFC, NFD = "Grüße", unicodedata.normalize("NFD", "Grüße")


class Order(msgspec.Struct):
    id: int
    total: float


@dataclasses.dataclass
class SameOrder:
    total: float
    id: int


class ModelOrder(pydantic.BaseModel):
    id: int
    total: float


class Sets(msgspec.Struct, frozen=True):
    left: set[Any]
    right: set[Any]


def same(left: Any, right: Any) -> bool:
    prints = fingerprint("k", left) == fingerprint("k", right)
    assert prints == (key.of(left) == key.of(right)), "key.of goes by the same canonical form"
    return prints


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}),
        ([1, 100, 0], [1.0, 1e2, -0.0]),
        (2**60, float(2**60)),
        (NFC, NFD),
        ({NFC: [NFC]}, {NFD: [NFD]}),
        ((1, 2), [1, 2]),
        (Order(7, 1.5), {"total": 1.5, "id": 7}),
        (Order(7, 2.0), SameOrder(2, 7)),
        (Order(7, 2.0), ModelOrder(id=7, total=2)),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
        (UUID(int=5), str(UUID(int=5))),
        (Decimal("1.5"), "1.5"),
        (b"ab", "YWI="),
        ({1: "x"}, {"1": "x"}),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_form_does_not_matter(left: Any, right: Any) -> None:
    assert same(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (True, 1),
        (False, 0),
        (None, False),
        (None, 0),
        (None, "null"),
        ("1", 1),
        ("true", True),
        ([], {}),
        ([], None),
        ("", None),
        ([1, 2], [2, 1]),
        ([1, 2], [12]),
        ([1, [2]], [[1], 2]),
        ([[], []], [[[]]]),
        (["a", "b"], ["ab"]),
        (["a,", "b"], ["a", ",b"]),
        ({"a": None}, {}),
        ({"a": {"b": 1}}, {"a": {}, "b": 1}),
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
        ({"ab": 1}, {"a": "b1"}),
        (1.5, "1.5"),
        (1, 1.0000000000000002),
        (2**53, 2**53 + 1),
        (2**64, 2**64 + 1),
        (10**30, 10**30 + 1),
        (0.1 + 0.2, 0.3),
        ("a", "A"),
        ("a", "a "),
        ("\0", ""),
        ("ß", "ss"),
        ("\N{ANGSTROM SIGN}", "A"),
        ("ﬁ", "fi"),
        (Decimal("1.0"), Decimal("1.00")),
    ],
    ids=ascii,
)
def test_other_content_differs(left: Any, right: Any) -> None:
    assert not same(left, right)


def test_another_kind_differs() -> None:
    assert fingerprint("order.charge", 1) != fingerprint("order.refund", 1)
    assert fingerprint("a", ["b"]) != fingerprint("a:b", [])


def test_the_form_is_versioned() -> None:
    assert fingerprint("k", None).startswith("1:")
    assert len(fingerprint("k", None)) == 2 + 32


def test_the_form_of_version_1_never_changes() -> None:
    """These are in people's databases. Whoever has to change them begins version 2."""
    canonical = '[12"order.charge,{5"cents4999,5"parts[f,t,n,1.5,1"ü,],8"order_id4"9482,},]'
    expected = hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()
    value = {"order_id": "9482", "cents": 4999.0, "parts": [False, True, None, 1.5, "u\u0308"]}
    assert fingerprint("order.charge", value) == f"1:{expected}"


HASH_SEED_SCRIPT = """
import dataclasses
import msgspec
import pydantic
from oncely import key
from oncely.model.payload import fingerprint

class Model(pydantic.BaseModel):
    tags: set[str]
    inner: dict[str, frozenset[str]]

@dataclasses.dataclass(frozen=True)
class Word:
    text: str
    letters: frozenset

class Holder(msgspec.Struct, frozen=True, rename="camel"):
    all_words: set

words = {"alpha", "beta", "gamma", "delta", "epsilon", "zeta"}
values = [
    words,
    {*words, 1, 2.5, None, ("x", 1)},
    {frozenset(word) for word in words},
    {Word(word, frozenset(word)) for word in words},
    Holder(words),
    {"a": [{"b": frozenset(words)}]},
    {word: word for word in words},
    Model(tags=words, inner={"x": frozenset(words)}),
    [Model(tags=words, inner={})],
]
print([fingerprint("k", value) for value in values], [key.of(value) for value in values])
"""


def test_sets_have_one_fingerprint_in_every_process() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", HASH_SEED_SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(outputs) == 1


def test_sets_differ_by_their_content() -> None:
    assert not same({"a", "b"}, {"a", "c"})
    assert not same({"a"}, {"a", "b"})
    assert not same(Sets({"a"}, set()), Sets(set(), {"a"}))
    assert same(Sets({"a", 1}, set()), {"left": [1, "a"], "right": []})


def test_the_payload_is_left_as_it_was() -> None:
    words = {"b", "a"}
    value = Sets(words, {frozenset({1})})
    fingerprint("k", [value])
    assert value.left is words
    assert value == Sets({"a", "b"}, {frozenset({1})})


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def shuffled(value: Any, rng: random.Random) -> Any:
    """The same value with the keys of every object in another order."""
    match value:
        case dict():
            items = [(name, shuffled(item, rng)) for name, item in value.items()]
            rng.shuffle(items)
            return dict(items)
        case list():
            return [shuffled(item, rng) for item in value]
        case _:
            return copy.copy(value)


def content(value: Any) -> Any:
    """A plain-Python notion of equal content: numbers by value, never equal to a boolean."""
    match value:
        case bool() | None:
            return ("word", value)
        case int() | float():
            return ("number", value)
        case str():
            return ("text", unicodedata.normalize("NFC", value))
        case list():
            return ("list", tuple(content(item) for item in value))
        case _:
            names = sorted(value.items(), key=lambda item: (content(item[0])[1], item[0]))
            return ("dict", tuple((content(name), content(item)) for name, item in names))


@given(value=json_values, rng=st.randoms(use_true_random=False))
def test_the_order_of_keys_never_matters(value: Any, rng: random.Random) -> None:
    assert fingerprint("k", value) == fingerprint("k", shuffled(value, rng))


@given(left=json_values, right=json_values)
def test_fingerprints_are_equal_exactly_when_the_content_is(left: Any, right: Any) -> None:
    assert same(left, right) == (content(left) == content(right))


@given(value=json_values, data=st.data())
def test_a_change_of_one_leaf_changes_the_fingerprint(value: Any, data: st.DataObject) -> None:
    leaf = data.draw(st.none() | st.booleans() | st.integers() | st.text())
    other = {"here": value, "there": leaf}
    changed = {"here": value, "there": data.draw(json_values)}
    assume(content(other) != content(changed))
    assert fingerprint("k", other) != fingerprint("k", changed)


@given(value=json_values)
def test_the_fingerprint_survives_a_round_trip_through_the_store(value: Any) -> None:
    back = decode(encode(value, max_bytes=1_000_000))
    assert fingerprint("k", back) == fingerprint("k", value)
