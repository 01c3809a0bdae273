"""`oncely enqueue`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Group, Parameter

from oncely.model.draft import draft
from oncely.model.errors import InvalidInput
from oncely.model.job import NewJob, Receipt
from oncely.surface.base import MAX_PAYLOAD_BYTES
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.say import answer, screen

_STDIN: Final = "@-"
_KEYS: Final = Group("Keys", sort_key=1)
_WHEN: Final = Group("When and how", sort_key=2)


def enqueue(
    kind: Annotated[str, Parameter(help="Names the handler, such as order.charge.")],
    payload: Annotated[
        str | None,
        Parameter(help="JSON text; - reads standard input, @FILE a file. Without it: null."),
    ] = None,
    /,
    *,
    idempotency_key: Annotated[
        str | None,
        Parameter(
            group=_KEYS,
            metavar="KEY",
            help="Identity of this enqueue: a repeat gets the first job, also after its end.",
        ),
    ] = None,
    unique_key: Annotated[
        str | None,
        Parameter(
            group=_KEYS,
            metavar="KEY",
            help="Identity of the work: skipped while a job with it is active.",
        ),
    ] = None,
    group_key: Annotated[
        str | None,
        Parameter(group=_KEYS, metavar="KEY", help="Label for limits, such as a tenant."),
    ] = None,
    queue: Annotated[
        str, Parameter(group=_WHEN, metavar="NAME", help="The lane it waits in.")
    ] = "default",
    priority: Annotated[int, Parameter(group=_WHEN, metavar="N", help="Higher runs first.")] = 0,
    delay: Annotated[
        float | None, Parameter(group=_WHEN, metavar="SECONDS", help="Not before that.")
    ] = None,
    run_at: Annotated[
        str | None,
        Parameter(
            group=_WHEN,
            metavar="TIME",
            help="Not before that, with a zone: 2030-01-31T09:00:00+01:00",
        ),
    ] = None,
    max_attempts: Annotated[
        int | None, Parameter(group=_WHEN, metavar="N", help="From 1 to 20.")
    ] = None,
    timeout: Annotated[
        float | None,
        Parameter(group=_WHEN, metavar="SECONDS", help="How long one execution may take."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        Parameter(group=_WHEN, metavar="TEXT", negative="", help="A label; can be repeated."),
    ] = None,
    options: Options = DEFAULTS,
) -> None:
    """Put a job in.

    A repeat that a key recognises stores nothing and names the first job.

        $ oncely enqueue order.charge '{"order_id": "9482"}' \\
            --idempotency-key order:9482:charge
        $ oncely enqueue digest.send @payload.json --delay 3600 --tag weekly
    """
    new = NewJob(
        kind,
        None if payload is None else _payload(payload),
        queue=queue,
        priority=priority,
        delay=delay,
        run_at=None if run_at is None else _moment(run_at),
        unique_key=unique_key,
        idempotency_key=idempotency_key,
        group_key=group_key,
        max_attempts=max_attempts,
        timeout=timeout,
        tags=tag or (),
    )
    # Checked before the store is opened, so that bad input makes no file.
    draft(new, "", queue_of=lambda _: "default", max_payload_bytes=MAX_PAYLOAD_BYTES)
    with opened(options, create=True) as app:
        receipt = app.enqueue(**msgspec.structs.asdict(new))
    if options.json:
        answer(receipt)
    else:
        screen().print(_sentence(receipt))


def _sentence(receipt: Receipt) -> str:
    if receipt.inserted:
        return f"inserted job {receipt.job_id}, {receipt.state}"
    return f"deduplicated: job {receipt.job_id} already there, {receipt.state}"


def payload_from_stdin(tokens: Sequence[str]) -> list[str]:
    """`-` in the place of PAYLOAD, written so that the parser does not take it for an option."""
    before = ("", *tokens)
    return [
        _STDIN if token == "-" and (not last.startswith("-") or last in ("--json", "--")) else token
        for last, token in zip(before, tokens, strict=False)
    ]


def _payload(given: str) -> Any:
    try:
        if given == _STDIN:
            source, data = "the payload on standard input", sys.stdin.buffer.read()
        elif given.startswith("@"):
            source, data = f"the payload in {given[1:]}", Path(given[1:]).read_bytes()
        else:
            source, data = "the payload", os.fsencode(given)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"the payload cannot be read from {given[1:]!r}: {reason}") from None
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{source} is not JSON ({error}): expected a JSON value such as "
            "'{\"order_id\": 1}', '[1, 2]' or '\"text\"'"
        ) from None


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"--run-at is {text!r}; expected a time such as 2030-01-31T09:00:00+01:00"
        ) from None
    if moment.tzinfo is None:
        raise InvalidInput(f"--run-at {text} has no time zone: add Z for UTC, or +02:00")
    return moment
