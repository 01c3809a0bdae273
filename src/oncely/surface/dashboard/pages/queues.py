"""Queues: how they stand, and their policy."""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Callable, Coroutine
from typing import Any, Final

from oncely.model.draft import check_name
from oncely.model.errors import InvalidInput, RaceError, UsageError
from oncely.model.flow import Queue
from oncely.model.push import Push
from oncely.model.retry import Retry
from oncely.store import limits
from oncely.surface.dashboard.ask import Ask, Go, Page, View
from oncely.surface.dashboard.pages import fields

_SECRET_BYTES: Final = 32
Act = Callable[[Ask], Coroutine[Any, Any, View | Go]]


async def show_all(ask: Ask) -> View | Go:
    name = ask.query.get("name")
    if name is not None:
        return Go(f"/queues/{check_name(name.strip(), 'the name')}")
    found = await ask.app.aqueues()
    ages = await ask.run(lambda _: limits.ages())
    return View("queues.html", {"queues": found, "ages": ages})


async def show(ask: Ask) -> View:
    return await _page(ask)


async def set_limits(ask: Ask) -> View | Go:
    await ask.app.aset_queue(
        ask.path["queue"],
        concurrency=fields.whole(ask.form, "concurrency", "Concurrency"),
        rate=fields.rate(ask.form),
    )
    return _done(ask, "The limits are set.")


async def set_policy(ask: Ask) -> View | Go:
    name = ask.path["queue"]
    await ask.app.aset_queue(
        name,
        retry=_retry(ask),
        timeout=fields.amount(ask.form, "timeout", "The time-out"),
        require_key="require_key" in ask.form,
    )
    ask.site.service.forget_queue(name)
    return _done(ask, "The policy is set.")


async def set_push(ask: Ask) -> View | Go:
    name, url = ask.path["queue"], fields.text(ask.form, "url")
    if url is None:
        raise InvalidInput("the URL is missing; expected http(s)://host/path")
    secret = fields.text(ask.form, "secret")
    made = secret is None and ((await _find(ask)).push is None or "new_secret" in ask.form)
    if made:
        secret = f"whsec_{b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()}"
    mode: Any = ask.form.get("mode", "sync")
    await ask.app.aset_queue(name, push=Push(url, secret, mode))
    if made:
        return await _page(ask, secret=secret)
    return _done(ask, "The push target is set.")


async def drop_push(ask: Ask) -> Go:
    await ask.app.aset_queue(ask.path["queue"], push=None)
    return _done(ask, "The push target is gone: workers take the jobs of this queue again.")


async def pause(ask: Ask) -> Go:
    await ask.app.apause(ask.path["queue"])
    return _back(ask, "paused: no more of its jobs begin.")


async def resume(ask: Ask) -> Go:
    await ask.app.aresume(ask.path["queue"])
    return _back(ask, "resumed.")


def _retry(ask: Ask) -> Retry | None:
    if ask.form.get("retry") != "own":
        return None
    plain = Retry()
    attempts = fields.whole(ask.form, "max_attempts", "The number of attempts")
    base = fields.amount(ask.form, "base", "The first wait")
    cap = fields.amount(ask.form, "cap", "The longest wait")
    backoff: Any = ask.form.get("backoff", plain.backoff)
    return Retry(
        max_attempts=plain.max_attempts if attempts is None else attempts,
        backoff=backoff,
        base=plain.base if base is None else base,
        cap=plain.cap if cap is None else cap,
        jitter="jitter" in ask.form,
    )


def _again(act: Act, part: str) -> Act:
    """What could not be done leads back to the form, as it was filled in, with the reason."""

    async def tried(ask: Ask) -> View | Go:
        try:
            return await act(ask)
        except (UsageError, RaceError) as error:
            return await _page(ask, wrong=(part, str(error)))

    return tried


async def _page(
    ask: Ask, *, wrong: tuple[str, str] | None = None, secret: str | None = None
) -> View:
    queue = await _find(ask)
    data = {
        "queue": queue,
        "age": (await ask.run(lambda _: limits.ages())).get(queue.name),
        "title": f"Queue {queue.name}",
        "filled": {**_filled(queue), **(_sent(ask) if wrong else {})},
        "wrong": wrong,
        "secret": secret,
    }
    return View("queue.html", data, 422 if wrong else 200)


def _filled(queue: Queue) -> dict[str, Any]:
    retry = queue.retry or Retry()
    return {
        "concurrency": queue.concurrency or "",
        "rate_count": "" if queue.rate is None else queue.rate[0],
        "rate_seconds": "" if queue.rate is None else fields.short(queue.rate[1]),
        "retry": "none" if queue.retry is None else "own",
        "max_attempts": retry.max_attempts,
        "backoff": retry.backoff,
        "base": fields.short(retry.base),
        "cap": fields.short(retry.cap),
        "jitter": retry.jitter,
        "timeout": "" if queue.timeout is None else fields.short(queue.timeout),
        "require_key": queue.require_key,
        "url": "" if queue.push is None else queue.push.url,
        "mode": "sync" if queue.push is None else queue.push.mode,
    }


def _sent(ask: Ask) -> dict[str, Any]:
    """What was typed, but the secret. A box that was not ticked is not sent."""
    sent: dict[str, Any] = {key: value for key, value in ask.form.items() if key != "secret"}
    if "max_attempts" in sent:
        sent |= {box: box in sent for box in ("jitter", "require_key")}
    return sent


async def _find(ask: Ask) -> Queue:
    """A queue that has no jobs and no policy is one all the same: it needs no making."""
    name = check_name(ask.path["queue"], "queue")
    found = [each for each in await ask.app.aqueues() if each.name == name]
    return found[0] if found else Queue(name, False, None, None, None, None, 0, 0)


def _done(ask: Ask, said: str) -> Go:
    return Go(f"/queues/{ask.path['queue']}", said)


def _back(ask: Ask, said: str) -> Go:
    name = ask.path["queue"]
    return Go(f"/queues/{name}" if "here" in ask.form else "/queues", f"Queue {name} is {said}")


PAGES: Final = (
    Page("GET", "/queues", show_all, "Queues", nav="Queues"),
    Page("GET", "/queues/{queue}", show, "Queue"),
    Page("POST", "/queues/{queue}/limits", _again(set_limits, "limits"), "Queue"),
    Page("POST", "/queues/{queue}/policy", _again(set_policy, "policy"), "Queue"),
    Page("POST", "/queues/{queue}/push", _again(set_push, "push"), "Queue"),
    Page("POST", "/queues/{queue}/push/drop", drop_push),
    Page("POST", "/queues/{queue}/pause", pause),
    Page("POST", "/queues/{queue}/resume", resume),
)
