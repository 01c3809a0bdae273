"""Which verb would have held."""

from __future__ import annotations

from oncely.prove.schedule import Schedule
from oncely.prove.verdict import Verdict
from oncely.prove.watch import Boundary

_KEY = (
    "If the other side takes a key: `ctx.step(name, fn, ctx.key(name), key_ttl=…)`, with its own "
    "key_ttl. If it can be asked: `ctx.fence(name, fn, verify=…)`. If neither: `ctx.fence(name, "
    "fn)`, which holds the job in doubt instead of guessing."
)


def advice(verdict: Verdict, schedule: Schedule, boundaries: list[Boundary]) -> str:
    calls = any(each.channel in ("http", "mail", "process") for each in boundaries)
    faults = {move.fault for move in schedule.moves}
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
