"""The examples of effects, in a worker that ends itself at the boundary it is told."""

import asyncio
import importlib
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from oncely import Oncely
from tests.crash import effect_scenes
from tests.crash.effect_scenes import Boundaries

EXAMPLES = Path(__file__).parents[2] / "examples" / "effects"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "world")


def load(name: str) -> Any:
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(name)


def make_app(name: str, url: str, folder: Path) -> Oncely:
    app = Oncely(url)
    load(name).register(app, folder)
    return app


def deliver(name: str, url: str, folder: Path, end_at: int | None, told: Path) -> None:
    """Run in a process of its own: all that is due, up to the boundary."""
    logging.disable(logging.CRITICAL)
    effect_scenes._here = Boundaries(end_at)
    app = make_app(name, url, folder)
    effect_scenes._watch(app)
    _watch_services()
    asyncio.run(app.worker(concurrency=1).drain())
    told.write_text(json.dumps(effect_scenes._here.names))
    os._exit(0)


def _watch_services() -> None:
    service = load("world").Service
    do = service.do

    def do_and_tell(self: Any, *what: Any) -> None:
        effect_scenes._here.pass_by("before effect")
        do(self, *what)
        effect_scenes._here.pass_by("after effect")

    service.do = do_and_tell
