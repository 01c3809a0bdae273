"""Redis: each command of redis-py. A key is recorded before it is first touched, so that it can be
put back."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

from oncely.prove.copies import Copies
from oncely.prove.redis_keys import RedisPlace, SavedKey
from oncely.prove.watch import Watch, knowing

_READS: Final = {
    "GET", "MGET", "EXISTS", "TTL", "PTTL", "TYPE", "STRLEN", "HGET", "HGETALL", "HEXISTS", "HKEYS",
    "HLEN", "HMGET", "HVALS", "LINDEX", "LLEN", "LRANGE", "SCARD", "SISMEMBER", "SMEMBERS", "ZCARD",
    "ZRANGE", "ZSCORE", "XLEN", "XRANGE", "GETRANGE", "PING", "HELLO", "AUTH", "SELECT", "CLIENT",
    "COMMAND", "INFO", "TIME", "DBSIZE", "KEYS", "SCAN", "HSCAN", "SSCAN", "ZSCAN", "WATCH",
    "UNWATCH", "MULTI", "EXEC", "DISCARD", "ECHO", "RANDOMKEY", "SUBSCRIBE", "PSUBSCRIBE",
    "UNSUBSCRIBE",
}  # fmt: skip
_REFUSED: Final = {
    "FLUSHDB", "FLUSHALL", "SWAPDB", "MOVE", "MIGRATE", "CONFIG", "SHUTDOWN", "DEBUG", "ACL",
    "REPLICAOF", "SLAVEOF", "FAILOVER", "MODULE", "FUNCTION", "RESTORE-ASKING", "SYNC", "PSYNC",
}  # fmt: skip
"""What changes more than the keys that it names, or another server."""


def install(watch: Watch, copies: Copies) -> None:
    if "redis" not in sys.modules:
        return
    import redis
    from redis import asyncio as aredis

    keeper = _Keeper(watch, copies, redis)
    _sync(watch, keeper, redis)
    _async(watch, keeper, aredis)
    _know_connect(watch, redis.connection.AbstractConnection, aredis.connection.AbstractConnection)
    for cluster in (redis.RedisCluster, aredis.RedisCluster):
        _refuse_cluster(watch, cluster)


class _Keeper:
    """Records the keys of commands before they are sent, over connections of its own."""

    def __init__(self, watch: Watch, copies: Copies, redis: Any) -> None:
        self._watch = watch
        self._keys = copies.redis
        self._error = redis.ResponseError
        self._execute = redis.Redis.execute_command

    def save(self, pool: Any, commands: Iterable[tuple[Any, ...]]) -> None:
        place = _place(pool)
        for args in commands:
            name = _text(args[0]).upper()
            if name.partition(" ")[0] in _REFUSED:
                self._watch.refuse(
                    f"the handler runs {name} on Redis, which changes more than keys that could be "
                    "put back: prove it without that"
                )
            if name == "PUBLISH":
                self._watch.note("unobserved", f"the message to {_text(args[1])} of Redis")
            elif name not in _READS:
                with knowing():
                    self._save(place, args)

    def _save(self, place: RedisPlace, args: tuple[Any, ...]) -> None:
        client = self._keys.client(place)
        try:
            names = self._ask(client, "COMMAND GETKEYS", *_text(args[0]).split(" "), *args[1:])
        except self._error:
            return  # it has no keys
        for name in names:
            if not self._keys.is_saved(place, name):
                dump = self._ask(client, "DUMP", name)
                self._keys.save(SavedKey(place, name, dump, int(self._ask(client, "PTTL", name))))

    def _ask(self, client: Any, *args: Any) -> Any:
        client.response_callbacks.clear()
        return self._execute(client, *args, NEVER_DECODE=True)


def _sync(watch: Watch, keeper: _Keeper, redis: Any) -> None:
    client, pipeline = redis.Redis, redis.client.Pipeline
    execute, at_once = client.execute_command, pipeline.immediate_execute_command
    together = pipeline.execute

    def execute_command(self: Any, *args: Any, **options: Any) -> Any:
        keeper.save(self.connection_pool, [args])
        _meet(watch, args)
        return execute(self, *args, **options)

    def execute_at_once(self: Any, *args: Any, **options: Any) -> Any:
        keeper.save(self.connection_pool, [args])
        _meet(watch, args)
        return at_once(self, *args, **options)

    def execute_together(self: Any, *args: Any, **options: Any) -> Any:
        stack = [_args(command) for command in self.command_stack]
        keeper.save(self.connection_pool, stack)
        if stack:
            _meet(watch, ("PIPELINE", *(command[0] for command in stack)))
        return together(self, *args, **options)

    client.execute_command = execute_command
    pipeline.immediate_execute_command = execute_at_once
    pipeline.execute = execute_together


def _async(watch: Watch, keeper: _Keeper, redis: Any) -> None:
    client, pipeline = redis.Redis, redis.client.Pipeline
    execute, at_once = client.execute_command, pipeline.immediate_execute_command
    together = pipeline.execute

    async def execute_command(self: Any, *args: Any, **options: Any) -> Any:
        keeper.save(self.connection_pool, [args])
        _meet(watch, args)
        return await execute(self, *args, **options)

    async def execute_at_once(self: Any, *args: Any, **options: Any) -> Any:
        keeper.save(self.connection_pool, [args])
        _meet(watch, args)
        return await at_once(self, *args, **options)

    async def execute_together(self: Any, *args: Any, **options: Any) -> Any:
        stack = [_args(command) for command in self.command_stack]
        keeper.save(self.connection_pool, stack)
        if stack:
            _meet(watch, ("PIPELINE", *(command[0] for command in stack)))
        return await together(self, *args, **options)

    client.execute_command = execute_command
    pipeline.immediate_execute_command = execute_at_once
    pipeline.execute = execute_together


def _know_connect(watch: Watch, connection: Any, aconnection: Any) -> None:
    connect, aconnect = connection.connect, aconnection.connect

    def check(one: Any) -> None:
        host = getattr(one, "host", None)
        if host is not None and not watch.hosts.may_be_called(str(host)):
            watch.refuse(
                f"the handler connects to Redis on {host}, which is not on this machine: what it "
                "does there would be done for real, many times. Let it connect to one on this "
                "machine, or name the host in allow_hosts=[…]"
            )

    def watched(self: Any, *args: Any, **options: Any) -> Any:
        check(self)
        with knowing():
            return connect(self, *args, **options)

    async def awatched(self: Any, *args: Any, **options: Any) -> Any:
        check(self)
        with knowing():
            return await aconnect(self, *args, **options)

    connection.connect, aconnection.connect = watched, awatched


def _refuse_cluster(watch: Watch, cluster: Any) -> None:
    def execute_command(self: Any, *args: Any, **options: Any) -> Any:
        del self, args, options
        watch.refuse(
            "the handler uses a cluster of Redis, whose keys are not watched: prove it with a "
            "single server"
        )

    cluster.execute_command = execute_command


def _args(command: Any) -> tuple[Any, ...]:
    return tuple(getattr(command, "args", None) or command[0])


def _meet(watch: Watch, args: tuple[Any, ...]) -> None:
    name = _text(args[0]).upper()
    told = " ".join(_text(arg) for arg in args[:6])
    if watch.pass_by("redis", told[:60], repeatable=name in _READS) == "fail":
        raise sys.modules["redis"].ConnectionError("Connection closed by server.")


def _place(pool: Any) -> RedisPlace:
    options = pool.connection_kwargs
    return RedisPlace(
        host=str(options.get("host", "localhost")),
        port=int(options.get("port") or 6379),
        db=int(options.get("db") or 0),
        username=options.get("username"),
        password=options.get("password"),
        path=options.get("path"),
    )


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
