"""What would have held: by the verdict, the fault, and the part of the world that is wrong."""

from __future__ import annotations

from typing import Final, Literal

from oncely.prove.schedule import Fault, Schedule
from oncely.prove.verdict import Difference, Verdict
from oncely.prove.watch import Boundary

Part = Literal["request", "mail", "jobs", "rows"]
_OVERLAPS: Final = {"zombie", "overlap"}
_IN_A_JOB: Final[dict[Part, str]] = {
    "request": (
        "If the other side takes a key: `ctx.step(name, fn, ctx.key(name), key_ttl=…)`, with its "
        "own key_ttl. If it can be asked: `ctx.fence(name, fn, verify=…)`. If neither: "
        "`ctx.fence(name, fn)`, which holds the job in doubt instead of guessing."
    ),
    "mail": (
        "A mail has no key: `ctx.fence(name, fn)` holds the job in doubt instead of sending it "
        "twice or not at all, and `verify=…` asks the outbox."
    ),
    "jobs": "Enqueue with `ctx.enqueue(…)`, or with an `idempotency_key` made from the payload.",
    "rows": (
        "Make them one: `ctx.transaction()` in the queue's database, `ledger.transaction(key, "
        "tx=…)` in another."
    ),
}
_ELSEWHERE: Final[dict[Part, str]] = {
    "request": (
        "Send a key that is the same in every delivery, made from the arguments and not at random, "
        "if the other side takes one. If it takes none: `oncely.Ledger(url).fence(key, fn)` "
        "remembers that it was begun, and holds a repeat instead of guessing."
    ),
    "mail": (
        "A mail has no key: `oncely.Ledger(url).fence(key, fn)` remembers that it was begun, and "
        "holds a repeat instead of guessing; `verify=…` asks the outbox."
    ),
    "jobs": "Enqueue with an `idempotency_key` made from the arguments.",
    "rows": (
        "Write the effect and a row with a unique key made from the arguments in one transaction, "
        "and do nothing if the row is there; `oncely.Ledger` has it as `transaction(key, tx=…)`."
    ),
}

_OF_FAULTS: dict[Fault, str] = {
    "tear": (
        "Half of the file was there, and was taken for the whole. Write to another file beside it, "
        "and put that in place with `os.replace`."
    ),
    "fresh": (
        "Another process makes another value of it: `hash()` of a string, the order of a set, or "
        "what is made when a module is imported. Make keys from the payload, as `oncely.key(…)` "
        "does, or in a job from `ctx.job_id`: `ctx.key(name)`."
    ),
    "fail": (
        "The statement failed, and the handler went on as if it had not. Let the exception out: "
        "the job is retried."
    ),
    "outage": (
        "The service was away for two requests, and the handler went on as if it had answered. Let "
        "the exception out: the job is retried."
    ),
    "drop": (
        "The request never arrived, and the handler took the time-out for success. Let the "
        "exception out, and send the same key again when the job is retried."
    ),
    "throttle": (
        "The service was busy, and the handler took that for its answer. Let the exception out: "
        "one with `Retry-After` defers the job, any other is retried."
    ),
    "lose": (
        "The commit was carried out, though its answer did not arrive: an exception does not say "
        "that nothing was done. Make the effect and its record one transaction, which a repeat "
        "finds: `ledger.transaction(key, tx=…)`, or in a job `ctx.transaction()`."
    ),
}
"""For faults that say by themselves what is wrong."""


def advice(
    verdict: Verdict,
    schedule: Schedule,
    boundaries: list[Boundary],
    differences: list[Difference],
    *,
    is_job: bool,
) -> str:
    part = _part(differences, boundaries)
    remedy = (_IN_A_JOB if is_job else _ELSEWHERE)[part]
    faults = {move.fault for move in schedule.moves}
    for fault, told in _OF_FAULTS.items():
        if fault in faults and (fault != "lose" or part == "rows"):
            return told
    if verdict == "stuck":
        together = "in `ctx.transaction()`" if is_job else "in one transaction"
        return (
            "It cannot go on from what an earlier delivery left. Write the effect and its record "
            f"together, {together}, or let a repeat recognise its own traces."
        )
    if "late" in faults and verdict == "doubled" and part == "request":
        forgotten = "What recognised the repeat was forgotten by then."
        if is_job:
            return (
                f"{forgotten} Say how long it lasts: `ctx.step(name, fn, ctx.key(name), "
                "key_ttl=…)` holds the job in doubt after that."
            )
        return f"{forgotten} {remedy}"
    if verdict == "lost":
        return (
            f"A mark was there before the effect, and the repeat took it for the effect. {remedy}"
        )
    if part == "rows":
        if faults & _OVERLAPS:
            return (
                "Two deliveries ran at once, and what the first one had read was old when it "
                "wrote. Let the database decide: a unique key, or the condition in the statement "
                "that writes (`update … where state = 'old'`)."
            )
        return f"The effect and its record are not in one transaction. {remedy}"
    return f"The effect was there before its record, and was done again. {remedy}"


def _part(differences: list[Difference], boundaries: list[Boundary]) -> Part:
    """A request or a mail cannot be rolled back, so it comes before rows that are wrong too."""
    labels = [each.label.partition(" ")[0] for each in differences]
    if "downstream" in labels:
        return "request"
    if "mailbox" in labels:
        return "mail"
    if labels == ["jobs"]:
        return "jobs"
    if "table" in labels:
        return "rows"
    calls = any(each.channel in ("http", "process") for each in boundaries)
    return "request" if calls else "rows"
