"""Plans of push targets: where the jobs of queues are sent to."""

from __future__ import annotations

import msgspec

from oncely.model.errors import InvalidInput
from oncely.model.push import Mode, Push, secret_bytes
from oncely.store.plan import Plan, Statement
from oncely.store.secret_key import decrypt, encrypt, is_encrypted_as_asked


class Target(msgspec.Struct, frozen=True):
    """Where the jobs of a queue are pushed to, with what it takes to sign. A target has either
    secrets, or a problem: then nothing can be sent to it."""

    queue: str
    url: str
    secrets: tuple[bytes, ...]
    mode: Mode
    problem: str | None = None

    def __repr__(self) -> str:
        return f"Target({self.queue!r}, {self.url!r}, mode={self.mode!r})"


def change(queue: str, new: Push | None) -> Plan[None]:
    """In a transaction."""
    stored = None
    if new is not None:
        if new.secrets is not None:
            stored = _stored(new.secrets)
        else:
            rows = yield Statement("push_look", {"name": queue})
            if not rows or rows[0][1] is None:
                raise InvalidInput(
                    f"queue {queue!r} has no push secret yet; expected one, 'whsec_' and 24 to 64 "
                    "random bytes in base64, such as `openssl rand -base64 32` makes"
                )
            stored = rows[0][1]
    yield Statement(
        "push_set",
        {
            "name": queue,
            "url": None if new is None else new.url,
            "secrets": stored,
            "mode": None if new is None else new.mode,
        },
    )


def targets() -> Plan[list[Target]]:
    rows = yield Statement("push_targets")
    return [_target(queue, url, stored, mode) for queue, url, stored, mode in rows]


def encrypt_secrets() -> Plan[None]:
    """In a transaction. Encrypts the secrets that are not encrypted with the key in force; those
    that cannot be read stay as they are."""
    for queue, _, stored, _ in (yield Statement("push_targets")):
        texts = _texts(stored)
        if all(map(is_encrypted_as_asked, texts)):
            continue
        try:
            anew = _stored([decrypt(text) for text in texts])
        except InvalidInput:
            continue
        yield Statement("push_secrets_set", {"name": queue, "secrets": anew, "before": stored})


def _target(queue: str, url: str, stored: str, mode: Mode) -> Target:
    try:
        secrets = tuple(secret_bytes(decrypt(text)) for text in _texts(stored))
    except InvalidInput as error:
        return Target(queue, url, (), mode, problem=str(error))
    return Target(queue, url, secrets, mode)


def _stored(secrets: list[str]) -> str:
    return msgspec.json.encode([encrypt(secret) for secret in secrets]).decode()


def _texts(stored: str) -> list[str]:
    return msgspec.json.decode(stored, type=list[str])
