"""The options that every command has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Group, Parameter

GENERAL: Final = Group("Everywhere", sort_key=100)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """Flattened by cyclopts into `--url`, `--schema` and `--json` of each command."""

    url: Annotated[
        str | None,
        Parameter(
            group=GENERAL,
            help="The store. Without it: $ONCELY_URL, else sqlite:///oncely.db",
        ),
    ] = None
    schema: Annotated[
        str, Parameter(group=GENERAL, metavar="NAME", help="The schema on PostgreSQL.")
    ] = "oncely"
    json: Annotated[
        bool,
        Parameter(group=GENERAL, negative="", show_default=False, help="Answer in JSON."),
    ] = False


DEFAULTS: Final = Options()
