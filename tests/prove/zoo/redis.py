"""Handlers on Redis: commands, locks, scripts, pipelines, streams."""

import os
import urllib.request
from typing import Any

import redis
from redis import asyncio as aioredis

from tests.prove.zoo.entries import expect


def client() -> Any:
    return redis.Redis.from_url(os.environ["SHOP_REDIS"], decode_responses=True)


def shop() -> dict[str, Any]:
    """What counts: the keys that begin with shop:, and not the marks. The list of work of
    `lmove_and_forget` counted at first, and what was left there made it diverged, not lost."""
    with client() as r:
        return {key: read(r, key) for key in sorted(r.scan_iter("shop:*"))}


def read(r: Any, key: str) -> Any:
    match r.type(key):
        case "hash":
            return r.hgetall(key)
        case "list":
            return r.lrange(key, 0, -1)
        case "set":
            return sorted(r.smembers(key))
        case "zset":  # as a list of pairs a score was no number to the prover: diverged
            return dict(r.zrange(key, 0, -1, withscores=True))
        case "stream":
            return [fields for _, fields in r.xrange(key)]
        case _:
            return int(r.get(key))


def send(order: str) -> None:
    urllib.request.urlopen(os.environ["SHOP_SERVICE"], order.encode(), timeout=30).close()


KEYS: dict[str, Any] = {"redis": True, "compare": (shop,)}


@expect("doubled", "INCR counts each delivery.", **KEYS)
def incr(order: str) -> None:
    with client() as r:
        r.incr("shop:orders")


@expect("sound", "A set has its member once.", **KEYS)
def sadd(order: str) -> None:
    with client() as r:
        r.sadd("shop:paid", order)


@expect("lost", "The mark is set before the mail is sent.", redis=True, service={})
def setnx_then_send(order: str) -> None:
    with client() as r:
        if r.set(f"sent:{order}", "1", nx=True):
            send(order)


@expect("doubled", "The mark is set after the mail was sent.", redis=True, service={})
def send_then_set(order: str) -> None:
    with client() as r:
        if not r.exists(f"sent:{order}"):
            send(order)
            r.set(f"sent:{order}", "1")


ONCE = "if redis.call('SET', KEYS[1], 1, 'NX') then redis.call('INCR', KEYS[2]) end"
ONCE_A_DAY = ONCE.replace("'NX'", "'NX', 'EX', 86400")


@expect("sound", "A script marks and counts in one step.", **KEYS)
def script_marks_and_counts(order: str) -> None:
    with client() as r:
        r.eval(ONCE, 2, f"seen:{order}", "shop:orders")


@expect("doubled", "The mark lives for a day, and the job comes again after two.", **KEYS)
def script_with_expiry(order: str) -> None:
    with client() as r:
        r.register_script(ONCE_A_DAY)(keys=[f"seen:{order}", "shop:orders"])


@expect("doubled", "MULTI makes it one step, and that step is repeated.", **KEYS)
def multi_without_mark(order: str) -> None:
    with client() as r, r.pipeline(transaction=True) as pipe:
        pipe.sadd("shop:paid", order).incrby("shop:cents", 990).execute()


@expect("sound", "WATCH lets only one of two workers commit.", **KEYS)
def watch_and_multi(order: str) -> None:
    with client() as r, r.pipeline() as pipe:
        while True:
            try:
                pipe.watch(f"seen:{order}")
                if pipe.exists(f"seen:{order}"):
                    return
                pipe.multi()
                pipe.set(f"seen:{order}", 1).incrby("shop:cents", 990).execute()
            except redis.WatchError:
                continue
            return


@expect("doubled", "The lock expires while its holder is paused.", **KEYS)
def lock_with_timeout(order: str) -> None:
    with client() as r, r.lock("lock:orders", timeout=30):
        if not r.exists(f"seen:{order}"):
            with r.pipeline() as pipe:
                pipe.set(f"seen:{order}", 1).incr("shop:orders").execute()


def fill_inbox() -> None:
    with client() as r:
        r.rpush("shop:inbox", "a", "b")


@expect("lost", "An item that was popped is in the memory of a dead process only.",
        prepare=fill_inbox, **KEYS)  # fmt: skip
def pop_and_count(order: str) -> None:
    with client() as r:
        while item := r.lpop("shop:inbox"):
            r.hset("shop:done", item, "1")


@expect("lost", "What a dead worker moved to the list of its work nobody looks at again.",
        prepare=fill_inbox, **KEYS)  # fmt: skip
def lmove_and_forget(order: str) -> None:
    with client() as r:
        while item := r.lmove("shop:inbox", "working", "LEFT", "RIGHT"):
            r.hset("shop:done", item, "1")
            r.lrem("working", 1, item)


@expect("sound", "What was left in the list of work is done first, and a hash takes it once.",
        prepare=fill_inbox, **KEYS)  # fmt: skip
def lmove_and_resume(order: str) -> None:
    with client() as r:
        for item in r.lrange("shop:working", 0, -1):
            r.hset("shop:done", item, "1")
            r.lrem("shop:working", 0, item)
        while item := r.lmove("shop:inbox", "shop:working", "LEFT", "RIGHT"):
            r.hset("shop:done", item, "1")
            r.lrem("shop:working", 0, item)


@expect("sound", "The list is renamed before it is read, and a repeat goes on with that one.",
        prepare=fill_inbox, **KEYS)  # fmt: skip
def rename_and_drain(order: str) -> None:
    with client() as r:
        if not r.exists("shop:batch") and r.exists("shop:inbox"):
            r.rename("shop:inbox", "shop:batch")
        for item in r.lrange("shop:batch", 0, -1):
            r.sadd("shop:done", item)
        r.delete("shop:batch")


@expect("doubled", "A stream gets a new entry with each delivery.", **KEYS)
def xadd(order: str) -> None:
    with client() as r:
        r.xadd("shop:events", {"order": order})


@expect(
    "sound", "The entry's id is the number of the order, and Redis refuses a second one.", **KEYS
)
def xadd_with_id(order: str) -> None:
    with client() as r:
        try:
            r.xadd("shop:events", {"order": order}, id="1-1")
        except redis.ResponseError as error:
            if "equal or smaller" not in str(error):
                raise


@expect("sound", "HSETNX keeps the first value, and ZADD the same score.", **KEYS)
def hsetnx_and_zadd(order: str) -> None:
    with client() as r:
        r.hsetnx("shop:prices", order, 990)
        r.zadd("shop:scores", {order: 990})


@expect("doubled", "ZINCRBY adds to the score each time.", **KEYS)
async def zincrby_async(order: str) -> None:
    async with aioredis.Redis.from_url(os.environ["SHOP_REDIS"]) as r:
        await r.zincrby("shop:scores", 5, order)


@expect("refused", "FLUSHDB could not be undone.", **KEYS)
def flushdb(order: str) -> None:
    with client() as r:
        r.flushdb()
        r.sadd("shop:paid", order)


@expect("lost", "An outage of Redis is swallowed.", **KEYS)
def swallow_redis_errors(order: str) -> None:
    try:
        with client() as r:
            r.sadd("shop:paid", order)
    except redis.RedisError:
        pass
