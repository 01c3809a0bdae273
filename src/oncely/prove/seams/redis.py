"""Redis: each command of redis-py. What a key was before it is first touched is told, so that it
can be put back."""

from __future__ import annotations

import sys
from base64 import b64encode
from typing import Any, Final

from oncely.prove.copies import Copies
from oncely.prove.watch import Watch, knowing

_READS: Final = {"GET", "MGET", "EXISTS", "TTL", "PTTL", "HGET", "HGETALL", "LRANGE", "SMEMBERS"}
_NO_KEY: Final = {
    "PING", "HELLO", "CLIENT", "AUTH", "SELECT", "INFO", "COMMAND", "MULTI", "EXEC", "WATCH",
    "UNWATCH", "PUBLISH", "SCRIPT", "CONFIG", "KEYS", "SCAN", "DBSIZE", "TIME",
}  # fmt: skip


def install(watch: Watch, _: Copies) -> None:
    if "redis" not in sys.modules:
        return
    import redis
    from redis import asyncio as aredis

    _sync(watch, redis)
    _async(watch, aredis)
    for connection in (redis.connection.AbstractConnection, aredis.connection.AbstractConnection):
        _know_connect(connection)


def _sync(watch: Watch, redis: Any) -> None:
    execute, pipeline = redis.Redis.execute_command, redis.client.Pipeline.execute

    def execute_command(self: Any, *args: Any, **options: Any) -> Any:
        for key in _keys(args):
            with knowing():
                _save(
                    watch,
                    self,
                    key,
                    execute(self, "DUMP", key, NEVER_DECODE=True),
                    execute(self, "PTTL", key),
                )
        _meet(watch, args)
        return execute(self, *args, **options)

    def execute_pipeline(self: Any, *args: Any, **options: Any) -> Any:
        stack = list(self.command_stack)
        for command in stack:
            for key in _keys(_args(command)):
                with knowing():
                    plain = redis.Redis(connection_pool=self.connection_pool)
                    _save(
                        watch,
                        self,
                        key,
                        execute(plain, "DUMP", key, NEVER_DECODE=True),
                        execute(plain, "PTTL", key),
                    )
        if stack:
            _meet(watch, ("PIPELINE", *(_args(command)[0] for command in stack)))
        return pipeline(self, *args, **options)

    redis.Redis.execute_command = execute_command
    redis.client.Pipeline.execute = execute_pipeline


def _async(watch: Watch, redis: Any) -> None:
    execute, pipeline = redis.Redis.execute_command, redis.client.Pipeline.execute

    async def execute_command(self: Any, *args: Any, **options: Any) -> Any:
        for key in _keys(args):
            with knowing():
                dump = await execute(self, "DUMP", key, NEVER_DECODE=True)
                _save(watch, self, key, dump, await execute(self, "PTTL", key))
        _meet(watch, args)
        return await execute(self, *args, **options)

    async def execute_pipeline(self: Any, *args: Any, **options: Any) -> Any:
        stack = list(self.command_stack)
        plain = redis.Redis(connection_pool=self.connection_pool)
        for command in stack:
            for key in _keys(_args(command)):
                with knowing():
                    dump = await execute(plain, "DUMP", key, NEVER_DECODE=True)
                    _save(watch, self, key, dump, await execute(plain, "PTTL", key))
        if stack:
            _meet(watch, ("PIPELINE", *(_args(command)[0] for command in stack)))
        return await pipeline(self, *args, **options)

    redis.Redis.execute_command = execute_command
    redis.client.Pipeline.execute = execute_pipeline


def _know_connect(connection: Any) -> None:
    real = connection._connect

    def connect(self: Any) -> Any:
        with knowing():
            return real(self)

    connection._connect = connect


def _args(command: Any) -> tuple[Any, ...]:
    return tuple(getattr(command, "args", None) or command[0])


def _meet(watch: Watch, args: tuple[Any, ...]) -> None:
    name = _text(args[0]).upper()
    told = " ".join(_text(arg) for arg in args[:6])
    watch.pass_by("redis", told[:60], repeatable=name in _READS)


def _keys(args: tuple[Any, ...]) -> list[str]:
    name = _text(args[0]).upper()
    if name in _NO_KEY or len(args) < 2:
        return []
    if name in ("EVAL", "EVALSHA"):
        return [_text(key) for key in args[3 : 3 + int(args[2])]]
    if name in ("DEL", "UNLINK", "EXISTS"):
        return [_text(key) for key in args[1:]]
    if name == "MSET":
        return [_text(key) for key in args[1::2]]
    return [_text(args[1])]


def _save(watch: Watch, client: Any, key: str, dump: bytes | None, ttl: Any) -> None:
    options = client.connection_pool.connection_kwargs
    place = [
        str(options.get("host", "localhost")),
        str(options.get("port", 6379)),
        str(options.get("db") or 0),
        str(options.get("username") or ""),
        str(options.get("password") or ""),
        str(options.get("path") or ""),
    ]
    left = str(max(0, int(ttl)))
    watch.note("redis", key, [*place, "" if dump is None else b64encode(dump).decode(), left])


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
