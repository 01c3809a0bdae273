"""What is believed for a moment: asked for once, whoever wants to know."""

import asyncio

import pytest

from oncely.surface.http import known
from oncely.surface.http.known import Known


class Store:
    """Answers when it is let; counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.value: str | None = "old"
        self.go = asyncio.Event()

    async def ask(self, name: str) -> str | None:
        self.asked += 1
        value = self.value
        await self.go.wait()
        if name == "broken":
            raise ValueError("no answer")
        return value


async def begun(of: Known[str | None], name: str, count: int) -> list[asyncio.Task[str | None]]:
    tasks = [asyncio.create_task(of.get(name)) for _ in range(count)]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


@pytest.mark.anyio
async def test_all_who_want_to_know_at_once_ask_once() -> None:
    store = Store()
    of = Known(store.ask)
    tasks = await begun(of, "a", 5)
    tasks[0].cancel()
    store.go.set()
    got = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(got[0], asyncio.CancelledError)
    assert got[1:] == ["old"] * 4
    assert await of.get("a") == "old"
    assert store.asked == 1
    assert await of.get("b") == "old"
    assert store.asked == 2


@pytest.mark.anyio
async def test_what_was_asked_before_a_change_is_not_believed_after_it() -> None:
    store = Store()
    of = Known(store.ask)
    before = await begun(of, "a", 1)
    store.value = "new"
    of.forget("a")
    after = await begun(of, "a", 1)
    store.go.set()
    assert [await each for each in (*before, *after)] == ["old", "new"]
    assert await of.get("a") == "new"
    of.forget("a")
    store.value = "newer"
    assert await of.get("a") == "newer"


@pytest.mark.anyio
async def test_neither_an_error_nor_what_does_not_exist_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store()
    store.go.set()
    of = Known(store.ask)
    for _ in range(2):
        with pytest.raises(ValueError, match="no answer"):
            await of.get("broken")
    store.value = None
    assert [await of.get("a"), await of.get("a")] == [None, None]
    assert store.asked == 4
    # And what is kept, not for long.
    store.value = "some"
    monkeypatch.setattr(known, "FRESH_SECONDS", 0.0)
    assert [await of.get("a"), await of.get("a")] == ["some", "some"]
    assert store.asked == 6
