"""What `oncely prove` does."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from oncely.model.errors import InvalidInput
from oncely.prove.baseline import compare, read_baseline, write_baseline
from oncely.prove.explore import prove
from oncely.prove.formats import WRITERS, as_json
from oncely.prove.page import page
from oncely.prove.paint import painted
from oncely.prove.report import Report
from oncely.prove.subjects import Proof, load_target, load_world, proofs_of_all, table
from oncely.surface.cli.prove import Format
from oncely.surface.cli.say import screen, write


def run(
    place: str,
    kind: str | None,
    *,
    payload: str | None,
    args: str | None,
    kwargs: str | None,
    headers: Sequence[str],
    is_all: bool,
    payloads: str | None,
    tables: Sequence[str],
    world: str | None,
    url: str | None,
    html: Path | None,
    baseline: Path | None,
    writes_baseline: bool,
    output: Format,
    **how: Any,
) -> int:
    """`how` goes to `prove` as it is."""
    if url is not None:
        os.environ["ONCELY_URL"] = url
    if writes_baseline and baseline is None:
        raise InvalidInput("--write-baseline is given alone; expected --baseline FILE with it")
    known = read_baseline(baseline) if baseline is not None and not writes_baseline else []
    target = load_target(place)
    if is_all:
        if kind is not None or payload is not None or args or kwargs or headers:
            raise InvalidInput("--all proves every kind, with --payloads; give no kind and payload")
        proofs = proofs_of_all(target, place, payloads)
    else:
        if payloads is not None:
            raise InvalidInput("--payloads is for --all; one kind takes --payload")
        proofs = [
            Proof(
                target,
                kind,
                _json(payload, "--payload", None),
                _json(args, "--args", []),
                _json(kwargs, "--kwargs", {}),
                dict(map(_header, headers)),
            )
        ]
    found = [*(table(target, url, name) for name in tables), *load_world(world)]
    quiet = output != "text" or how["schedule"] is not None or not sys.stderr.isatty()
    reports = [_prove(each, quiet=quiet, world=found, **how) for each in proofs]
    if baseline is not None:
        if writes_baseline:
            write_baseline(baseline, reports)
            known = read_baseline(baseline)
        for report in reports:
            compare(report, known)
    if html is not None:
        html.write_text(page(reports), "utf-8")
    _show(reports, output, is_list=is_all)
    return 0 if all(report.ok for report in reports) else 1


def _show(reports: Sequence[Report], output: Format, *, is_list: bool) -> None:
    if output == "json":
        write(as_json(reports, is_list=is_list))
    elif output in WRITERS:
        write(WRITERS[output](reports))
    else:
        for number, report in enumerate(reports):
            if number:
                screen().print()
            screen().print(painted(report))


def _prove(proof: Proof, *, quiet: bool, **options: Any) -> Report:
    options |= proof.options()
    if quiet:
        return prove(proof.target, proof.kind, proof.payload, **options)
    columns = (TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=Console(stderr=True), transient=True, auto_refresh=False
    ) as bar:
        task = bar.add_task("schedules", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)
            # By hand: a thread that draws would be lost in every fork.
            bar.refresh()

        return prove(proof.target, proof.kind, proof.payload, progress=show, **options)


def _json(text: str | None, option: str, default: Any) -> Any:
    if text is None:
        return default
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{option} is not JSON: {error}") from None
    if default is not None and not isinstance(value, type(default)):
        expected = "an array" if default == [] else "an object"
        raise InvalidInput(f"{option} is {text}; expected {expected} of JSON")
    return value


def _header(text: str) -> tuple[str, str]:
    name, mark, value = text.partition(":")
    if not mark or not name.strip():
        raise InvalidInput(f"--header is {text!r}; expected NAME: VALUE")
    return name.strip(), value.strip()
