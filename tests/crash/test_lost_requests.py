"""The answer to a write of the request's record is lost: the request still runs once, and its
response is the answer to the repeat."""

from collections.abc import Iterator

import pytest

from oncely import Oncely
from oncely.asgi import IdempotencyMiddleware
from oncely.surface.asgi.types import Receive, Send
from tests.crash.proxy import Fault, Proxy, When
from tests.engine.steps import sql
from tests.surface.asgi_driver import Client, Till
from tests.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio
BEGIN = "insert into"
DONE = "set state = 'done'"
LET_GO = "set owner = -1"
CLEAR = "delete from"
lost = pytest.mark.parametrize("when", ["before", "after", "late"])


@pytest.fixture
def direct(migrated: None, postgres_url: str) -> Iterator[Oncely]:
    with Oncely(postgres_url) as app:
        app.migrate()
        yield app


@pytest.fixture
def proxy(direct: Oncely) -> Iterator[Proxy]:
    with Proxy(direct.url) as proxy:
        yield proxy


@pytest.fixture
def far(proxy: Proxy) -> Iterator[Oncely]:
    """Through the proxy, with a connection that is open already."""
    with Oncely(proxy.url) as app:
        app.jobs()
        yield app


@lost
@pytest.mark.parametrize("text", [BEGIN, DONE], ids=["begin", "done"])
async def test_it_runs_once_and_its_response_is_repeated(
    direct: Oncely, far: Oncely, proxy: Proxy, text: str, when: When
) -> None:
    till = Till()
    fault = Fault(text, when)
    proxy.arm(fault)
    first = await Client(IdempotencyMiddleware(till, far)).send()
    assert fault.happened.wait(PATIENCE_SECONDS)
    assert (first.status, first.replayed) == (201, False)
    repeat = await Client(IdempotencyMiddleware(till, direct)).send()
    assert (repeat.status, repeat.body, repeat.replayed) == (201, first.body, True)
    assert till.runs == 1


@lost
async def test_a_doubt_is_a_doubt(direct: Oncely, far: Oncely, proxy: Proxy, when: When) -> None:
    async def fail(receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    till = Till()
    till.before = fail
    fault = Fault(LET_GO, when)
    proxy.arm(fault)
    with pytest.raises(ZeroDivisionError):
        await Client(IdempotencyMiddleware(till, far)).send()
    assert fault.happened.wait(PATIENCE_SECONDS)
    repeat = await Client(IdempotencyMiddleware(till, direct)).send()
    assert repeat.code == (409, "outcome_unknown")
    assert till.runs == 1


@lost
async def test_what_was_not_acted_upon_runs_when_it_comes_again(
    direct: Oncely, far: Oncely, proxy: Proxy, when: When
) -> None:
    till = Till()
    till.status = 429
    fault = Fault(CLEAR, when)
    proxy.arm(fault)
    await Client(IdempotencyMiddleware(till, far)).send()
    till.status = 201
    assert (await Client(IdempotencyMiddleware(till, direct)).send()).body == b"run 2"
    assert fault.happened.wait(PATIENCE_SECONDS)
    assert sql(direct, "select state from oncely.request") == [("done",)]
