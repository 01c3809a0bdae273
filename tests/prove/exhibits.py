"""The recipes of `examples/originals` as jobs to prove, and what the guide says of each."""

import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from oncely import Context, Oncely
from oncely.prove import Downstream, Report, Table, Violation, prove
from oncely.prove.world import WorldItem
from tests.crash.original_scenes import AT_ONCE, RECIPES, Recipe, Verdict, load, make_places

COMPARED = {
    "look_then_send": ["mails"],
    "lock_that_expires": ["reports"],
    "fence_row": ["fences"],
    "completion_row": ["completions"],
    "row_then_charge": ["charges"],
    "run_row": ["runs"],
    "change_where_old": ["trials"],
    "change_then_tell": ["trials"],
    "ledger_row": ["processed", "payments"],
}
WORST = ("ok", "unrecorded", "lost", "doubled")


class Exhibit:
    """One recipe on a stage of its own."""

    def __init__(self, name: str, folder: Path, redis: str) -> None:
        self.recipe: Recipe = RECIPES[name]
        self.service = Downstream(keys="forgotten", replaces=name == "put_by_id")
        self.database = str(folder / "shop.db")
        places = make_places(self.database, self.service.url, redis)
        with closing(sqlite3.connect(self.database)) as db:
            db.executescript(load(name).TABLES)
        self.app = Oncely(f"sqlite:///{folder / 'jobs.db'}")
        handler = load(name).handler

        @self.app.job("original", retry=AT_ONCE)
        def original(ctx: Context, payload: Any) -> Any:
            return handler(ctx, payload, places)

        tables = [Table(f"sqlite:///{self.database}", each) for each in COMPARED.get(name, [])]
        self.world: list[WorldItem] = [*tables, self.service]

    def prove(self, **options: Any) -> Report:
        options = {"budget_seconds": math.inf, **options}
        return prove(self.app, "original", self.recipe.payload, world=self.world, **options)

    def close(self) -> None:
        self.app.close()
        self.service.close()


def cells(report: Report, recipe: Recipe) -> tuple[Verdict, ...]:
    """What the report says in the columns of the guide's table."""
    effect = max(each.number for each in report.boundaries if _is_effect(each.name, recipe))
    reaches_out = recipe.effect == "call"
    crashes = [each.number for each in report.boundaries]
    return (
        _worst(report, [f"crash@{n}" for n in crashes if n <= effect]),
        _worst(report, [f"crash@{n}" for n in crashes if n > effect]),
        _worst(report, [f"refuse@{effect}"]) if reaches_out else "none",
        _worst(report, [f"lose@{effect}", f"timeout@{effect}"]) if reaches_out else "none",
        _worst(report, [f"late@{effect}", f"late@{effect + 1}"]),
        _worst(report, [f"zombie@{n}" for n in crashes]),
    )


def _is_effect(name: str, recipe: Recipe) -> bool:
    return name.startswith("POST" if recipe.effect == "call" else recipe.effect)


def _worst(report: Report, tokens: Sequence[str]) -> Verdict:
    found = {each.token: each for each in report.violations}
    verdicts = [_in_the_guide(found[token]) for token in tokens if token in found]
    return max(["ok", *verdicts], key=WORST.index)


def _in_the_guide(violation: Violation) -> Verdict:
    """The guide says *unrecorded* where the call was made and only its row never came."""
    called = not any(each.label.startswith("downstream") for each in violation.differences)
    if violation.verdict in ("lost", "diverged") and called:
        return "unrecorded"
    assert violation.verdict in ("lost", "doubled"), violation.timeline()
    return "lost" if violation.verdict == "lost" else "doubled"
