"""`oncely migrate` and `oncely doctor`: looking after the store."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Final

from rich.text import Text

from oncely.model.errors import SchemaError, StoreError
from oncely.store.engine import Finding
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import address, file_of, opened
from oncely.surface.cli.say import answer, screen, visible

_MARKS: Final = {"ok": "green", "warning": "yellow", "error": "bold red"}


def migrate(*, options: Options = DEFAULTS) -> None:
    """Bring the store's schema up to date.

    Safe to repeat, and safe from many processes at once.

        $ oncely migrate --url postgresql://app@db/orders
    """
    with opened(options, create=True) as app:
        applied = app.migrate()
    if options.json:
        answer({"applied": applied})
        return
    out = screen()
    for name in applied:
        out.print(f"applied {name}")
    if not applied:
        out.print("nothing to do: the schema is up to date")


def doctor(*, options: Options = DEFAULTS) -> int:
    """Examine the store: reachable, schema, durability, clock.

    Each finding is ok, a warning or an error; with an error the exit code is 1.

        $ oncely doctor --url postgresql://app@db/orders
    """
    findings = _examine(options)
    if options.json:
        answer(findings)
    else:
        out = screen()
        for line in _lines(findings, out.width if out.is_terminal else None):
            out.print(line)
    return 1 if any(finding.status == "error" for finding in findings) else 0


def _examine(options: Options) -> list[Finding]:
    try:
        with opened(options) as app:
            return app.examine()
    except SchemaError as error:
        return [Finding("schema", "error", str(error))]
    except StoreError as error:
        server = file_of(address(options.url)) is None
        advice = ". Check --url or $ONCELY_URL, and that the server is up" if server else ""
        return [Finding("store", "error", f"{error}{advice}")]


def _lines(findings: list[Finding], width: int | None) -> Iterator[Text]:
    """One line each in a file; folded under itself on a terminal."""
    marks = max(map(len, _MARKS))
    names = max(len(finding.name) for finding in findings)
    indent = marks + names + 4
    for finding in findings:
        detail = visible(finding.detail)
        if width is not None:
            rows = wrap(detail, max(20, width - indent), break_on_hyphens=False)
            detail = f"\n{' ' * indent}".join(rows)
        mark = (f"{finding.status:<{marks}}", _MARKS[finding.status])
        yield Text.assemble(mark, f"  {finding.name:<{names}}  {detail}")
