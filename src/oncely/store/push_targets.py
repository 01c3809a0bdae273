"""Plans of push targets: where the jobs of queues are sent to."""

from __future__ import annotations

import msgspec

from oncely.model.errors import InvalidInput
from oncely.model.push import Mode, Push, secret_bytes
from oncely.store.plan import Plan, Statement


class Target(msgspec.Struct, frozen=True):
    """Where the jobs of a queue are pushed to, with what it takes to sign."""

    queue: str
    url: str
    secrets: tuple[bytes, ...]
    mode: Mode

    def __repr__(self) -> str:
        return f"Target({self.queue!r}, {self.url!r}, mode={self.mode!r})"


def change(queue: str, new: Push | None) -> Plan[None]:
    """In a transaction."""
    secrets = None
    if new is not None:
        secrets = new.secrets
        if secrets is None:
            rows = yield Statement("push_look", {"name": queue})
            if not rows or rows[0][1] is None:
                raise InvalidInput(
                    f"queue {queue!r} has no push secret yet; expected one, 'whsec_' and 24 to 64 "
                    "random bytes in base64, such as `openssl rand -base64 32` makes"
                )
            secrets = msgspec.json.decode(rows[0][1], type=list[str])
    yield Statement(
        "push_set",
        {
            "name": queue,
            "url": None if new is None else new.url,
            "secrets": None if secrets is None else msgspec.json.encode(secrets).decode(),
            "mode": None if new is None else new.mode,
        },
    )


def targets() -> Plan[list[Target]]:
    rows = yield Statement("push_targets")
    return [
        Target(
            queue,
            url,
            tuple(secret_bytes(text) for text in msgspec.json.decode(secrets, type=list[str])),
            mode,
        )
        for queue, url, secrets, mode in rows
    ]
