"""`oncely keys`: which keys recognise repeats, and which cannot."""

from __future__ import annotations

from typing import Final

from rich.text import Text

from oncely.model.health import KeyHealth, Verdict
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.say import answer, screen, visible

_STYLES: Final[dict[Verdict, str]] = {
    "recognises": "green",
    "no_repeat_yet": "",
    "no_keys": "yellow",
    "looks_random": "bold red",
    "too_coarse": "bold red",
}


def keys(*, options: Options = DEFAULTS) -> None:
    """Look at the keys of each kind: do they recognise repeats, and can they?

    What was counted is since the store was made; what keys look like is seen
    from the newest 10,000 jobs.

        $ oncely keys
        $ oncely keys --json
    """
    with opened(options) as app:
        found = app.key_health()
    if options.json:
        answer(found)
        return
    out = screen()
    for health in found:
        out.print(Text.assemble((visible(health.kind), "bold"), f"  {_counted(health)}"))
        out.print(Text(f"    {health.advice}{_example(health)}", style=_STYLES[health.verdict]))
    if not found:
        out.print("no jobs were enqueued yet")


def _counted(health: KeyHealth) -> str:
    conflicts = "1 conflict" if health.conflicts == 1 else f"{health.conflicts:,} conflicts"
    keyed = f"{health.keyed:,} of the newest {health.sampled:,} have a key"
    return (
        f"{health.enqueued:,} enqueued, {health.deduplicated:,} deduplicated, {conflicts}; {keyed}"
    )


def _example(health: KeyHealth) -> str:
    if health.verdict != "looks_random" or health.example is None:
        return ""
    return f" (not {visible(health.example)!r})"
