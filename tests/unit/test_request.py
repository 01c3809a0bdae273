"""The key in the header, and the fingerprint of a request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncely import InvalidInput
from oncely.model.request import fingerprint, is_kept, kept_headers, parse_key

PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=255)


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        (b"8e03978e-40d5", "8e03978e-40d5"),
        (b'"8e03978e-40d5"', "8e03978e-40d5"),
        (b"  order 7 ", "order 7"),
        (rb'"a\"b\\c"', 'a"b\\c'),
        (rb"a\b", r"a\b"),
        (b'a"b', 'a"b'),
        (b'"a, b"', "a, b"),
        (b"x" * 255, "x" * 255),
        (b'"' + b"x" * 255 + b'"', "x" * 255),
    ],
)
def test_both_forms_of_a_key(sent: bytes, key: str) -> None:
    assert parse_key([sent]) == key


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ([b"a", b"a"], "comes 2 times"),
        ([b""], "0 characters"),
        ([b"   "], "0 characters"),
        ([b'""'], "0 characters"),
        ([b"x" * 256], "256 characters"),
        ([b"a, b"], "cannot be read"),
        ([b'"a", "b"'], "cannot be read"),
        ([b'"a'], "cannot be read"),
        ([b'"a"b'], "cannot be read"),
        ([b'"a";p=1'], "cannot be read"),
        ([rb'"a\n"'], "cannot be read"),
        ([b"caf\xe9"], "cannot be read"),
        ([b"a\x00b"], "cannot be read"),
        ([b"a\tb"], "cannot be read"),
        ([b'" a"'], "white space"),
    ],
)
def test_what_is_not_a_key(sent: list[bytes], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        parse_key(sent)


@given(PRINTABLE)
def test_a_quoted_key_comes_back_as_it_was(key: str) -> None:
    quoted = '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if key == key.strip():
        assert parse_key([quoted.encode()]) == key
    else:
        with pytest.raises(InvalidInput):
            parse_key([quoted.encode()])


PART = st.binary(max_size=4)
PARTS = st.tuples(st.sampled_from(["POST", "PATCH"]), PART, PART, PART)


@given(PARTS, PARTS)
def test_only_the_same_request_has_the_same_fingerprint(
    one: tuple[str, bytes, bytes, bytes], other: tuple[str, bytes, bytes, bytes]
) -> None:
    assert (fingerprint(*one) == fingerprint(*other)) == (one == other)


def test_no_part_runs_into_the_next() -> None:
    assert fingerprint("POST", b"/a", b"", b"b") != fingerprint("POST", b"/", b"a", b"b")
    assert fingerprint("POST", b"/1:a", b"", b"") != fingerprint("POST", b"/", b"a", b"")


def test_what_is_kept_of_which_status() -> None:
    for status in (200, 201, 204, 302, 400, 403, 404, 409, 422):
        assert is_kept(status, "refuse")
        assert is_kept(status, "run")
    for status in (401, 425, 429):
        assert not is_kept(status, "refuse")
        assert not is_kept(status, "run")
    for status in (500, 502, 503):
        assert is_kept(status, "refuse")
        assert not is_kept(status, "run")


def test_headers_of_the_connection_and_cookies_are_not_kept() -> None:
    kept = kept_headers(
        [
            (b"Content-Type", b"text/plain"),
            (b"Location", b"/caf\xe9"),
            (b"link", b"a"),
            (b"link", b"b"),
            (b"Set-Cookie", b"session=secret"),
            (b"Connection", b"close"),
            (b"transfer-encoding", b"chunked"),
            (b"date", b"yesterday"),
            (b"idempotent-replayed", b"false"),
        ]
    )
    assert kept == [
        ("Content-Type", "text/plain"),
        ("Location", "/caf\xe9"),
        ("link", "a"),
        ("link", "b"),
    ]
