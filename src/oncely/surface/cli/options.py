"""The options that every command has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Group, Parameter

GENERAL: Final = Group("Everywhere", sort_key=100)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """Flattened by cyclopts into `--url`, `--api-key`, `--schema` and `--json` of each command."""

    url: Annotated[
        str | None,
        Parameter(
            group=GENERAL,
            help="The store, or a server. Without it: $ONCELY_URL, else sqlite:///oncely.db",
        ),
    ] = None
    api_key: Annotated[
        str | None,
        Parameter(
            group=GENERAL,
            metavar="KEY",
            show_default=False,
            help="For a server (--url https://…). Better in $ONCELY_API_KEY: others can see "
            "command lines.",
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
