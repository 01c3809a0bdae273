"""Workers: who is there, and who was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from oncely.surface.dashboard.ask import Ask, Page, View
from oncely.surface.dashboard.live import Topic

if TYPE_CHECKING:
    from oncely.surface.dashboard.site import Site


async def show(ask: Ask) -> View:
    part = await ask.site.live.part("workers", ask.root)
    return View("workers.html", {"part": Markup(part)})


async def read(site: Site) -> Mapping[str, Any]:
    found = await site.app.aworkers()
    alive = [each for each in found if each.alive]
    return {
        "workers": sorted(found, key=lambda each: (each.alive, each.host or "", each.name)),
        "alive": len(alive),
        "silent": len(found) - len(alive),
        "running": sum(each.running for each in alive),
        "room": sum(each.concurrency or 0 for each in alive),
        "versions": sorted({each.version for each in alive if each.version}),
    }


PAGES: Final = (Page("GET", "/workers", show, "Workers", nav="Workers"),)
TOPICS: Final = (Topic("workers", "workers_part.html", read),)
