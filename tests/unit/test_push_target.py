"""Where a push may go. The list of what is refused, one by one."""

import socket
from collections.abc import Sequence

import pytest

from oncely import InvalidInput, PushRefused
from oncely.flow.push_target import check_target, is_allowed

PUBLIC = "93.184.215.14"

NOT_PUBLIC = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "168.63.129.16",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%lo",
    "febf::1",
    "fec0::1",
    "fc00::1",
    "fd12:3456::1",
    "ff02::1",
    "100::1",
    "2001:db8::1",
    "2001:2::1",
    "2001:10::1",
    "3fff::1",
    "5f00::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "::127.0.0.1",
    "::10.0.0.1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2002:a9fe:a9fe::",
    "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::1",
    "64:ff9b:1:7f00:0:100::",
    "2001:0:4136:e378:8000:63bf:80ff:fffe",
    "2001:0:7f00:1::",
    "2a00::5efe:10.0.0.1",
    "2a00::200:5efe:127.0.0.1",
    "not an address",
    "",
]
IS_PUBLIC = [
    PUBLIC,
    "1.1.1.1",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001::1",
    "::ffff:1.1.1.1",
    "64:ff9b::1.1.1.1",
]


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert not is_allowed(address, [])
    with pytest.raises(PushRefused):
        check_target("https://hooks.example/", resolve=lambda *_: [address])


@pytest.mark.parametrize("address", IS_PUBLIC)
def test_a_public_address_is_not(address: str) -> None:
    assert is_allowed(address, [])


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "127.0.0.01",
        "127.0.0.1.",
        "0x7f000001.",
        "0",
        "1.1.1.1.1",
        "256.1.1.1",
        "93.184.215.014",
        "0x5db8d70e",
        "foo.0x7f",
        "[::1%25lo]",
        "[::1%lo]",
        "[127.0.0.1]",
        "[v1.x]",
        "",
        "-a.example",
        "a..example",
        ".example",
        "a" * 64 + ".example",
        ".".join(["abcdefgh"] * 40),
        "exa%6dple.com",
    ],
)
def test_odd_spellings_of_hosts_are_refused_before_they_are_resolved(host: str) -> None:
    def never(*_: object) -> Sequence[str]:
        raise AssertionError("it was resolved")

    with pytest.raises(PushRefused):
        check_target(f"http://{host}/hook", resolve=never)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://hooks.example/",
        "file:///etc/passwd",
        "gopher://hooks.example/",
        "javascript:alert(1)",
        "//hooks.example/",
        "hooks.example",
        "http:hooks.example",
        "https://user@hooks.example/",
        "https://user:pa55word@hooks.example/",
        "https://hooks.example@127.0.0.1/",
        "https://hooks.example\\@127.0.0.1/",
        "https://hooks.example\\.evil/",
        "https://hooks.example:0/",
        "https://hooks.example:65536/",
        "https://hooks.example:80x/",
        "https://hooks.example/#part",
        "https://hooks.example/\r\nHost: other",
        "https://hooks.example/a b",
        "https://hooks.example/\x00",
        "https://hooks.example\t/",
        " https://hooks.example/",
        "https://hookß.example/",
        "https://\uff11\uff12\uff17.0.0.1/",
        "https://hooks。example/",
        "https://[::1/",
        "https://]/",
        "",
        7,
        None,
    ],
)
def test_urls_that_are_none_are_refused_before_they_are_resolved(url: str) -> None:
    def never(*_: object) -> Sequence[str]:
        raise AssertionError("it was resolved")

    with pytest.raises(PushRefused) as refused:
        check_target(url, resolve=never)
    assert "pa55word" not in str(refused.value)


def test_one_address_that_is_not_public_is_one_too_many() -> None:
    with pytest.raises(PushRefused, match="not a public address") as refused:
        check_target("https://hooks.example/", resolve=lambda *_: [PUBLIC, "10.0.0.1"])
    assert "10.0.0.1" not in str(refused.value), "what an internal name resolves to is not told"


@pytest.mark.parametrize("error", [socket.gaierror(-2, "unknown"), OSError("down"), UnicodeError()])
def test_a_resolver_that_fails_is_a_refusal(error: Exception) -> None:
    def fails(*_: object) -> Sequence[str]:
        raise error

    with pytest.raises(PushRefused, match="cannot be resolved"):
        check_target("https://hooks.example/", resolve=fails)
    with pytest.raises(PushRefused, match="no address"):
        check_target("https://hooks.example/", resolve=lambda *_: [])


def test_a_url_is_taken_apart() -> None:
    place = check_target("https://Hooks.Example:8443/a/b?c=d%20e", resolve=lambda *_: [PUBLIC])
    assert (place.tls, place.host, place.port) == (True, "hooks.example", 8443)
    assert (place.authority, place.target) == ("hooks.example:8443", "/a/b?c=d%20e")
    place = check_target("http://hooks.example", resolve=lambda *_: [PUBLIC])
    assert (place.tls, place.port, place.target) == (False, 80, "/")
    place = check_target("http://[2606:4700:4700::1111]:81/")
    assert (place.host, place.port) == ("2606:4700:4700::1111", 81)
    assert place.authority == "[2606:4700:4700::1111]:81"


@pytest.mark.parametrize(
    ("networks", "address", "is_ok"),
    [
        ("127.0.0.0/8", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("10.1.0.0/16, fd00::/8", "10.1.2.3", True),
        ("10.1.0.0/16 fd00::/8", "fd00::7", True),
        ("10.1.0.0/16", "10.2.0.1", False),
        ("10.1.0.0/16", "::ffff:10.1.0.1", True),
        ("", "127.0.0.1", False),
        ("0.0.0.0/0", "::1", False),
    ],
)
def test_the_operator_allows_networks(
    monkeypatch: pytest.MonkeyPatch, networks: str, address: str, is_ok: bool
) -> None:
    monkeypatch.setenv("ONCELY_PUSH_ALLOW", networks)
    try:
        check_target("http://hooks.example/", resolve=lambda *_: [address])
    except PushRefused:
        assert not is_ok
    else:
        assert is_ok


@pytest.mark.parametrize(
    "networks", ["10.0.0.0/33", "10.0.0.1/8", "localhost", "10.0.0.0-10.0.0.9"]
)
def test_networks_that_are_none_are_an_error_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, networks: str
) -> None:
    monkeypatch.setenv("ONCELY_PUSH_ALLOW", networks)
    with pytest.raises(InvalidInput, match="ONCELY_PUSH_ALLOW"):
        check_target("http://hooks.example/", resolve=lambda *_: [PUBLIC])
