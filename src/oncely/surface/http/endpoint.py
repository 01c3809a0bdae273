"""One call of the API as a value: what it is called by, who may, what travels, and what does it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from oncely.model.flow import Queue
from oncely.model.redact import masked_url
from oncely.model.token import Scope, Token
from oncely.surface.app import Oncely
from oncely.surface.asgi.types import Receive
from oncely.surface.http.problem import PROBLEMS, Refused
from oncely.surface.http.service import Service

B = TypeVar("B")
Q = TypeVar("Q")


class Answer(msgspec.Struct, frozen=True):
    """`value` is what the endpoint says it answers, or bytes of its `media_type`."""

    value: Any
    status: int = 200
    headers: Mapping[str, str] = {}


class Call(Generic[B, Q]):
    """A request after every check that is the same for all. `token` is None on an open server."""

    __slots__ = ("body", "headers", "path", "query", "receive", "service", "token")

    def __init__(
        self,
        service: Service,
        *,
        path: Mapping[str, str],
        headers: Mapping[str, str],
        token: Token | None,
        receive: Receive | None = None,
    ) -> None:
        self.service = service
        self.path = path
        self.headers = headers
        self.body: B
        self.query: Q
        self.token = token
        self.receive = receive

    async def is_gone(self) -> bool:
        """Whether nobody waits for the answer any more. Only once the body was read."""
        if self.receive is None:
            return False
        try:
            async with asyncio.timeout(0):
                message = await self.receive()
        except TimeoutError:
            return False
        return bool(message["type"] == "http.disconnect")

    @property
    def app(self) -> Oncely:
        return self.service.app

    @property
    def queues(self) -> tuple[str, ...]:
        """Those that the token is limited to; empty if it is for all."""
        return () if self.token is None else self.token.queues

    def scoped(self, unique_key: str | None, queue: str) -> str | None:
        """A unique key as it is stored: of a token that is limited to queues, the queue's own. Else
        it could find, and hold, the keys of queues that it may not see."""
        if unique_key is None or not self.queues:
            return unique_key
        return f"queue:{queue}:{unique_key}"

    @property
    def caller(self) -> str:
        """Who says so, where that is kept."""
        if self.token is None:
            return "http"
        name = "" if self.token.name is None else f"{self.token.name[:100].rstrip()} "
        return f"token:{name}({self.token.token_id})"

    def enter(self, queue: str) -> None:
        """Refuse what the token may not touch, whether there is such a queue or not."""
        if self.token is not None and not self.token.sees(queue):
            raise Refused("queue_forbidden", f"This key is not for the queue {queue!r}.")

    def enter_all(self) -> None:
        """The same for what speaks of all queues."""
        if self.queues:
            raise Refused(
                "queue_forbidden", "This speaks of all queues, and this key is not for all."
            )

    def shown(self, queue: Queue) -> Queue:
        """As this key may see it: the URL of a push target can have a secret in it, which is for
        `admin` alone."""
        if queue.push is None or self.token is None or self.token.may("admin"):
            return queue
        push = msgspec.structs.replace(queue.push, url=masked_url(queue.push.url))
        return msgspec.structs.replace(queue, push=push)

    async def see(self, job_id: str) -> str:
        """The id, if there is such a job and the token may see it; else the same 404 for both.
        Whether it exists at all is left to the verb where the token is for all queues."""
        if self.queues:
            job = await self.app.aget(job_id)
            if job is None or job.queue not in self.queues:
                raise absent()
        return job_id


def absent() -> Refused:
    return Refused(
        "job_not_found",
        "There is no such job that this key may see: check the id; jobs that ended long ago are "
        "pruned.",
    )


class Endpoint(msgspec.Struct, frozen=True):
    """`scope` None: open to everyone."""

    method: str
    path: str
    scope: Scope | None
    act: Callable[[Call[Any, Any]], Awaitable[Answer]]
    summary: str
    answer: Any = None
    body: Any = None
    body_optional: bool = False
    """Whether the body may be left out. Where that would change what is done, it may not: a client
    whose body is lost on the way must be refused."""
    query: Any = None
    statuses: Mapping[int, str] = msgspec.field(default_factory=lambda: {200: "Done"})
    """The good ones, each with what it means."""
    headers: Mapping[str, str] = {}
    """Those that an answer may have, each with what it means."""
    problems: tuple[str, ...] = ()
    """The codes beside those that any call can have."""
    media_type: str = "application/json"
    large: bool = False
    """Whether the body may be as large as that of a batch."""
    tag: str = "Jobs"
    links: Mapping[str, Any] = {}
    """OpenAPI links of the answer, for those who follow them."""

    @property
    def name(self) -> str:
        return self.act.__name__

    def codes(self) -> list[str]:
        """All refusals that it can answer with, by status."""
        found = {*self.problems, *ALWAYS}
        if self.scope is not None:
            found |= GUARDED
        if "{queue}" in self.path:
            found.add("queue_forbidden")
        if "{id}" in self.path:
            found.add("job_not_found")
        if self.body is not None:
            found |= WITH_BODY
        if self.body is not None or self.query is not None or "{" in self.path:
            found.add("invalid_request")
        return sorted(found, key=lambda code: (PROBLEMS[code].status, code))


ALWAYS: Final = {
    "malformed_request",
    "invalid_header",
    "request_too_slow",
    "body_too_slow",
    "body_too_large",
    "headers_too_large",
    "internal_error",
    "too_many_connections",
    "store_unavailable",
}
GUARDED: Final = {
    "unauthenticated",
    "scope_missing",
    "rate_limited",
    "not_this_machine",
    "cross_site",
}
WITH_BODY: Final = {"malformed_json", "unsupported_media_type"}
