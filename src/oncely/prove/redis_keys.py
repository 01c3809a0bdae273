"""The keys of Redis that a handler touches: put back after a schedule, aged when time passes."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from oncely.prove.watch import Note


class RedisKeys:
    def __init__(self) -> None:
        self._first: dict[tuple[tuple[str, ...], str], tuple[bytes | None, int]] = {}
        self._clients: dict[tuple[str, ...], Any] = {}

    def learn(self, note: Note) -> None:
        """How a key was before the handler first touched it."""
        *place, dump, ttl = note.more
        known = b64decode(dump) if dump else None
        self._first.setdefault((tuple(place), note.text), (known, int(ttl)))

    def restore(self) -> None:
        for (place, key), (dump, ttl) in self._first.items():
            client = self._client(place)
            if dump is None:
                client.delete(key)
            else:
                client.restore(key, ttl, dump, replace=True)

    def let_pass(self, seconds: float) -> None:
        """Its clock cannot be moved, but what ends by then can be removed."""
        for place, key in self._first:
            client = self._client(place)
            left = client.pttl(key)
            if left > 0:
                rest = left - round(seconds * 1000)
                client.pexpire(key, rest) if rest > 0 else client.delete(key)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _client(self, place: tuple[str, ...]) -> Any:
        if place not in self._clients:
            import redis

            host, port, db, user, password, path = place
            if path:
                self._clients[place] = redis.Redis(unix_socket_path=path, db=int(db))
            else:
                self._clients[place] = redis.Redis(
                    host, int(port), int(db), username=user or None, password=password or None
                )
        return self._clients[place]
