"""The keys of Redis that a handler touches: put back after a schedule, aged when time passes."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from oncely.prove.watch import knowing

_RECORD: Final = ".msgpack"


class RedisPlace(msgspec.Struct, frozen=True):
    """A database of a server."""

    host: str
    port: int
    db: int
    username: str | None
    password: str | None
    path: str | None


class SavedKey(msgspec.Struct, frozen=True):
    """A key as it was before the handler first touched it; without a `dump` it was not there."""

    place: RedisPlace
    name: bytes
    dump: bytes | None
    ttl_ms: int


class RedisKeys:
    """Each key is recorded by the child, before it touches the key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clients: dict[RedisPlace, Any] = {}

    def save(self, key: SavedKey) -> None:
        """In a child. What is recorded already stays."""
        with knowing():
            record = self._record(key.place, key.name)
            if not record.exists():
                made = record.with_suffix(".new")
                made.write_bytes(msgspec.msgpack.encode(key))
                made.rename(record)

    @property
    def is_used(self) -> bool:
        return any(self._folder.glob(f"*{_RECORD}"))

    def is_saved(self, place: RedisPlace, name: bytes) -> bool:
        return self._record(place, name).exists()

    def restore(self) -> None:
        for key in self._saved():
            self._restore(key)

    def _restore(self, key: SavedKey) -> None:
        client = self.client(key.place)
        if key.dump is None:
            client.delete(key.name)
        else:
            client.restore(key.name, max(0, key.ttl_ms), key.dump, replace=True)

    def put_back(self) -> bool:
        """Restore each key once, and forget it. False if a server does not answer: its keys are
        still recorded."""
        import redis

        is_done = True
        for record in self._folder.glob(f"*{_RECORD}"):
            try:
                self._restore(_read(record))
            except redis.RedisError:
                is_done = False
            else:
                record.unlink()
        return is_done

    def changed(self) -> list[str]:
        """The keys that hold something else by now."""
        return sorted(
            key.name.decode(errors="replace")
            for key in self._saved()
            if self.client(key.place).dump(key.name) != key.dump
        )

    def let_pass(self, seconds: float) -> None:
        """Its clock cannot be moved, but what ends by then can be removed."""
        for key in self._saved():
            client = self.client(key.place)
            left = client.pttl(key.name)
            if left > 0:
                rest = left - round(seconds * 1000)
                client.pexpire(key.name, rest) if rest > 0 else client.delete(key.name)

    def close(self) -> None:
        self.restore()
        for client in self._clients.values():
            client.close()

    def _record(self, place: RedisPlace, name: bytes) -> Path:
        digest = sha256(msgspec.msgpack.encode((place, name))).hexdigest()[:24]
        return self._folder / f"{digest}{_RECORD}"

    def _saved(self) -> Iterator[SavedKey]:
        for record in self._folder.glob(f"*{_RECORD}"):
            yield _read(record)

    def client(self, place: RedisPlace) -> Any:
        if place not in self._clients:
            import redis

            who: dict[str, Any] = {
                "username": place.username,
                "password": place.password,
                "db": place.db,
            }
            if place.path:
                self._clients[place] = redis.Redis(unix_socket_path=place.path, **who)
            else:
                self._clients[place] = redis.Redis(place.host, place.port, **who)
        return self._clients[place]


def _read(record: Path) -> SavedKey:
    return msgspec.msgpack.decode(record.read_bytes(), type=SavedKey)


def restore_from(folder: Path) -> bool:
    """The keys that a proof has recorded whose process was killed."""
    keys = RedisKeys(folder)
    return not keys.is_used or keys.put_back()
