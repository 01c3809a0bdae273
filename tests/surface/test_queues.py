"""`oncely queues`."""

from base64 import b64encode

import pytest

from oncely import Oncely
from oncely.store.push_targets import targets
from tests.surface.command import Command

URL = "https://192.0.78.9/jobs"


def test_an_empty_store_has_none(at: Command) -> None:
    assert at("queues").out == "no jobs, no limits\n"
    assert at("queues", "--group").out == "no limit, no pause\n"
    assert at("queues", "--json").json() == []


def test_a_queue_is_limited_paused_and_freed(at: Command, url: str) -> None:
    at("enqueue", "k", "--queue", "mail")
    told = at("queues", "--set", "mail", "--concurrency", "3", "--rate", "5/2.5", "--timeout", "9")
    assert told.out == ("mail  1 waiting, 0 running, concurrency 3, rate 5 in 2.5 s, timeout 9 s\n")
    assert at("queues", "--pause", "mail").out.endswith(", paused, timeout 9 s\n")
    with Oncely(url) as app:
        assert app.drain() == 0
    at("queues", "--resume", "mail")
    lifted = at(
        "queues", "--set", "mail", "--concurrency", "none", "--rate", "none", "--timeout", "none"
    )
    assert lifted.out == "mail  1 waiting, 0 running\n"
    [queue] = at("queues", "--json").json()
    assert (queue["name"], queue["waiting"], queue["paused"]) == ("mail", 1, False)


def test_a_group_is_limited_and_paused(at: Command) -> None:
    told = at("queues", "--group", "--set", "acme", "--concurrency", "2")
    assert told.out == "acme  0 running, concurrency 2\n"
    assert at("queues", "--group", "--pause", "acme").out.endswith(", paused\n")
    assert at("queues", "--group", "--resume", "acme").out == "acme  0 running, concurrency 2\n"


def test_a_push_target_is_set_changed_and_lifted(
    at: Command, app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = [f"whsec_{b64encode(bytes([n] * 24)).decode()}" for n in range(3)]
    monkeypatch.setenv("ONCELY_PUSH_SECRET", secrets[0])
    told = at("queues", "--set", "hooks", "--push-url", URL, "--require-key")
    monkeypatch.delenv("ONCELY_PUSH_SECRET")
    assert told.out == f"hooks  0 waiting, 0 running, pushed to {URL}, only with keys\n"
    # What is not named stays as it is, and two secrets are in force while the receiver changes.
    assert at("queues", "--set", "hooks", "--push-mode", "ack").code == 0
    rotated = at("queues", "--set", "hooks", "--push-secret", ",".join(secrets[1:]), "--json")
    assert rotated.json()[0]["push"] == {"url": URL, "mode": "ack"}
    assert not any(secret in rotated.out for secret in secrets)
    [kept] = app._engine.run(lambda _: targets(), "read")
    assert kept.secrets == (bytes([1] * 24), bytes([2] * 24))
    lifted = at("queues", "--set", "hooks", "--push-url", "none", "--no-require-key")
    assert lifted.out == "hooks  0 waiting, 0 running\n"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--concurrency", "3"), "--concurrency goes with --set NAME"),
        (("--set", "q"), "nothing is set for queue 'q'"),
        (("--set", "q", "--concurrency", "x"), "--concurrency is 'x'"),
        (("--set", "q", "--concurrency", "1.5"), "concurrency is 1.5"),
        (("--set", "q", "--concurrency", "0"), "To stop it altogether, pause it"),
        (("--set", "q", "--rate", "5"), "--rate is '5'"),
        (("--set", "q", "--rate", "1.5/2"), "rate is (1.5, 2)"),
        (("--set", "q", "--rate", "1/nan"), "rate is (1, nan)"),
        (("--group", "--set", "q", "--timeout", "5"), "--timeout is for queues"),
        (("--group", "--set", "q", "--push-mode", "ack"), "--push-mode is for queues"),
        (("--push-url", URL), "--push-url goes with --set NAME"),
        (("--set", "q", "--push-url", URL), "has no push secret yet"),
        (("--set", "q", "--push-mode", "ack"), "expected --push-url too"),
        (("--set", "q", "--push-url", URL, "--push-secret", "short"), "secret is not usable"),
        (("--set", "q", "--push-url", "http://10.1.2.3/"), "not a public address"),
        (("--pause", "q", "--resume", "q"), "--pause and --resume are given"),
        (("--pause", "a b"), "queue"),
    ],
)
def test_bad_input_changes_nothing(at: Command, args: tuple[str, ...], told: str) -> None:
    done = at("queues", *args)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert at("queues", "--json").json() == at("queues", "--group", "--json").json() == []
