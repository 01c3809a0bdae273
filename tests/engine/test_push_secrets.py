"""Push secrets at rest: encrypted with `$ONCELY_SECRET_KEY`, and nothing is sent without them."""

import asyncio
import json
import logging
from base64 import b64encode

import pytest
from standardwebhooks import Webhook

from oncely import InvalidInput, Oncely, Push
from tests.engine.push_receiver import Receiver, receiver
from tests.engine.steps import sql
from tests.engine.test_push import SECRET, put, send_all, to, until

VARIABLE = "ONCELY_SECRET_KEY"
OLD, NEW = (b64encode(bytes([n]) * 32).decode() for n in (250, 251))


@pytest.fixture(autouse=True)
def _loopback_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCELY_PUSH_ALLOW", "127.0.0.0/8")
    monkeypatch.delenv(VARIABLE, raising=False)


def stored(app: Oncely) -> list[str]:
    [(secrets,)] = sql(app, "select push_secrets from oncely.queue where name = 'hooks'")
    found: list[str] = json.loads(secrets) if isinstance(secrets, str) else secrets
    return found


def verify_last(there: Receiver) -> None:
    request = there.requests[-1]
    Webhook(SECRET).verify(request.body, request.headers)


def test_a_secret_is_encrypted_with_the_key(app: Oncely, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, OLD)
    with receiver() as there:
        to(app, there)
        [text] = stored(app)
        assert text.startswith("fernet:")
        app.set_queue("hooks", push=Push(there.url, mode="sync"))  # which keeps the secret
        put(app)
        assert send_all(app) == 1
        verify_last(there)
    everything = sql(app, "select * from oncely.queue"), app.audit(), app.queues()
    assert "MfKQ9r8G" not in repr(everything)


@pytest.mark.parametrize(
    ("key", "told"),
    [(None, "ONCELY_SECRET_KEY is not set"), (NEW, "none of the keys in $ONCELY_SECRET_KEY")],
)
def test_without_the_right_key_nothing_is_sent(
    app: Oncely,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    key: str | None,
    told: str,
) -> None:
    monkeypatch.setenv(VARIABLE, OLD)
    with receiver() as there, receiver() as other:
        to(app, there)
        job_id = put(app)
        monkeypatch.delenv(VARIABLE)
        if key is not None:
            monkeypatch.setenv(VARIABLE, key)
        app.set_queue("other", push=Push(other.url, secret=SECRET))
        app.enqueue("k", queue="other")
        assert send_all(app) == 1, "the other target has its secret"
        assert (there.connections, len(other.requests)) == (0, 1)
        [record] = [each for each in caplog.records if "not usable" in each.getMessage()]
        assert record.levelno == logging.WARNING
        assert "queue=hooks" in record.getMessage()
        assert told in record.getMessage()
        found = app.get(job_id)
        assert found is not None
        assert (found.state, found.attempt) == ("pending", 0)
        monkeypatch.setenv(VARIABLE, OLD)
        assert send_all(app) == 1
        verify_last(there)


def test_a_running_pusher_that_can_no_longer_read_a_secret_sends_nothing(
    app: Oncely, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with receiver() as there:
        to(app, there)
        put(app)

        async def lose_the_key() -> None:
            pusher = app.pusher()
            running = asyncio.create_task(pusher.arun())
            while not there.requests:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            # Another server, which has a key, sets the target anew.
            monkeypatch.setenv(VARIABLE, OLD)
            await app.aset_queue("hooks", push=Push(there.url, secret=SECRET))
            monkeypatch.delenv(VARIABLE)
            while "not usable" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await app.aenqueue("k", queue="hooks")
            pusher.stop()
            await running

        asyncio.run(lose_the_key())
        assert send_all(app) == 0
        assert len(there.requests) == 1


def test_the_first_key_encrypts_and_each_of_them_decrypts(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as there:
        to(app, there)
        assert stored(app) == [SECRET], "without a key it lies in the clear"
        for keys in (OLD, f"{NEW}, {OLD}", NEW):
            monkeypatch.setenv(VARIABLE, keys)
            before = stored(app)
            there.requests.clear()
            put(app)
            asyncio.run(until(app, app.pusher(), lambda: bool(there.requests)))
            verify_last(there)
            # A pusher that starts encrypts what the first key did not.
            assert (stored(app) == before) == (keys == NEW)


@pytest.mark.parametrize("key", ["", "too short", "x" * 44, f"{OLD},", f"{OLD},é"])
def test_a_key_that_cannot_be_one_is_refused(
    app: Oncely, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv(VARIABLE, key)
    push = Push("http://127.0.0.1/", secret=SECRET)
    with pytest.raises(InvalidInput, match="ONCELY_SECRET_KEY") as refused:
        app.set_queue("hooks", push=push)
    assert key == "" or key not in str(refused.value)
    assert app.queues() == []
    with pytest.raises(InvalidInput, match="ONCELY_SECRET_KEY"):
        app.pusher()
