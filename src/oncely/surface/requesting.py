"""The HTTP requests whose outcome nobody knows: to look at, and to answer for."""

from __future__ import annotations

from typing import Any, Final

from oncely.model import payload
from oncely.model.effect import check_note
from oncely.model.errors import InvalidInput, RequestNotFound
from oncely.model.keys import check_key, shown
from oncely.model.request import RequestInDoubt, Response
from oncely.store import requests
from oncely.surface.acting import trail
from oncely.surface.base import Base, twin

_MOST: Final = 1_000
_JSON: Final = '[["content-type","application/json"]]'


class Requesting(Base):
    def requests_in_doubt(self, *, limit: int = 100) -> list[RequestInDoubt]:
        """The requests that `IdempotencyMiddleware` began and nobody knows the outcome of, the
        longest first: repeats of them are refused until `resolve_request` says what happened."""
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MOST:
            raise InvalidInput(f"limit is {shown(limit)}; expected a number from 1 to {_MOST:,}")
        return self._engine.run(lambda _: requests.doubts(None, limit), "read")

    def resolve_request(
        self,
        key: str,
        *,
        happened: bool,
        status: int | None = None,
        body: Any = None,
        caller: str | None = None,
        note: str | None = None,
        by: str | None = None,
    ) -> None:
        """Say whether a request in doubt took effect.

        If it `happened`, `status` and `body`, a JSON value, are the response that every repeat
        gets. If not, the next repeat runs. `caller` is needed only if more than one has a request
        in doubt under this key. Who said so (`by`; if not said, the user of this process), when and
        with what `note` is kept in the audit trail.
        """
        check_key(key, "the key")
        response = _response(happened, status, body)
        named = self._only_caller(key) if caller is None else caller and check_key(caller, "caller")
        who = trail(by=None if by is None else check_key(by, "by"), note=check_note(note))
        self._engine.run(
            lambda again: requests.resolve(named, key, response, again=again, trail=who),
            "transaction",
        )

    def _only_caller(self, key: str) -> str:
        found = self._engine.run(lambda _: requests.doubts(key, 10), "read")
        if len(found) > 1:
            callers = ", ".join(repr(doubt.caller) for doubt in found)
            raise InvalidInput(
                f"more than one caller has a request in doubt under key {key!r}: say which, with "
                f"caller=, of {callers}"
            )
        if not found:
            others = self._engine.run(lambda _: requests.doubts(None, 10), "read")
            raise RequestNotFound(key, [doubt.key for doubt in others])
        return found[0].caller

    arequests_in_doubt = twin(requests_in_doubt)
    aresolve_request = twin(resolve_request)


def _response(happened: Any, status: Any, body: Any) -> Response | None:
    if not isinstance(happened, bool):
        raise InvalidInput(f"happened is {shown(happened)}; expected True or False")
    if not happened:
        if status is not None or body is not None:
            raise InvalidInput("a response is given for a request that did not happen")
        return None
    if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599:
        raise InvalidInput(
            f"status is {shown(status)}; expected the status, from 200 to 599, that the repeats of "
            "a request that happened are answered with"
        )
    if body is None:
        return Response(status, "[]", b"")
    return Response(status, _JSON, payload.encode(body, max_bytes=1024 * 1024).encode())
