"""Which verb would have held."""

from __future__ import annotations

from oncely.prove.schedule import Fault, Schedule
from oncely.prove.verdict import Verdict
from oncely.prove.watch import Boundary

_KEY = (
    "If the other side takes a key: `ctx.step(name, fn, ctx.key(name), key_ttl=…)`, with its own "
    "key_ttl. If it can be asked: `ctx.fence(name, fn, verify=…)`. If neither: `ctx.fence(name, "
    "fn)`, which holds the job in doubt instead of guessing."
)

_OF_FAULTS: dict[Fault, str] = {
    "tear": (
        "Half of the file was there, and was taken for the whole. Write to another file beside it, "
        "and put that in place with `os.replace`."
    ),
    "fresh": (
        "Another process makes another value of it: `hash()` of a string, the order of a set, or "
        "what is made when a module is imported. Make keys from the payload or from `ctx.job_id`: "
        "`ctx.key(name)`, `oncely.key(…)`."
    ),
    "fail": (
        "The statement failed, and the handler went on as if it had not. Let the exception out: "
        "the job is retried."
    ),
    "outage": (
        "The service was away for two requests, and the handler went on as if it had answered. Let "
        "the exception out: the job is retried."
    ),
    "throttle": (
        "The service was busy, and the handler took that for its answer. Let the exception out: "
        "one with `Retry-After` defers the job, any other is retried."
    ),
    "lose": (
        "The commit was carried out, though its answer did not arrive: an exception does not say "
        "that nothing was done. Make the effect and its record one transaction: "
        "`ctx.transaction()` in the queue's database, `ledger.transaction(key, tx=…)` in another."
    ),
}
"""For faults that say by themselves what is wrong."""


def advice(verdict: Verdict, schedule: Schedule, boundaries: list[Boundary]) -> str:
    calls = any(each.channel in ("http", "mail", "process") for each in boundaries)
    faults = {move.fault for move in schedule.moves}
    for fault, told in _OF_FAULTS.items():
        if fault in faults and (fault != "lose" or not calls):
            return told
    if verdict == "stuck":
        return (
            "The handler cannot go on from what an earlier delivery left. Write the effect and the "
            "end of the job together, in `ctx.transaction()`, or let a repeat find its own traces."
        )
    if "late" in faults and verdict == "doubled" and calls:
        return (
            "What recognised the repeat was forgotten by then. Say how long it lasts: "
            "`ctx.step(name, fn, ctx.key(name), key_ttl=…)` holds the job in doubt after that."
        )
    if verdict == "lost":
        told = "A mark was there before the effect, and the repeat took it for the effect."
        return f"{told} {_KEY}" if calls else f"{told} Put both in `ctx.transaction()`."
    if calls:
        return f"The effect was there before its record, and was done again. {_KEY}"
    return (
        "The effect and its record are two transactions. Make them one: `ctx.transaction()` in the "
        "queue's database, `ledger.transaction(key, tx=…)` in another."
    )
