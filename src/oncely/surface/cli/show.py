"""`oncely show`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from shlex import quote
from textwrap import indent
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter
from msgspec.structs import replace
from rich.text import Text

from oncely.flow.redaction import redaction
from oncely.model.errors import JobNotFound
from oncely.model.job import Effect, Job
from oncely.model.story import Story
from oncely.model.words import line, shown
from oncely.surface.cli.moments import when
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import masked, opened
from oncely.surface.cli.say import STATE_STYLES, answer, pretty, screen, state_text, visible

_LABEL: Final = len("idempotency key")
_NONE: Final = Text("none", style="dim")


def show(
    job_id: Annotated[str, Parameter(help="As `oncely enqueue` and `oncely jobs` print it.")],
    /,
    *,
    options: Options = DEFAULTS,
) -> None:
    """Show one job whole: payload, keys, times, effects, and its story in order.

    With --json every field of a job as Python knows it, and the events of its story.
    Fields whose names say that they are secret are hidden; $ONCELY_REDACT names more.

        $ oncely show 0199a5c2-6f8e-7d31-9c55-2f6f0a1b7e42
    """
    with opened(options) as app:
        job = app.get(job_id)
        if job is None:
            raise JobNotFound(job_id)
        story = app.explain(job_id)
    job, story = _redacted(job, story)
    if options.json:
        answer({**msgspec.structs.asdict(job), "story": story.events})
        return
    out = screen()
    for text in (*_lines(job, story, datetime.now(UTC)), *_questions(job, options)):
        out.print(text)


def _redacted(job: Job, story: Story) -> tuple[Job, Story]:
    hide = redaction()
    effects = [
        replace(
            effect,
            arguments=hide(effect.arguments),
            result=hide(effect.result),
            resolutions=[replace(each, note=hide(each.note)) for each in effect.resolutions],
        )
        for effect in job.effects
    ]
    executions = [replace(each, error=hide(each.error)) for each in job.executions]
    events = [replace(each, error=hide(each.error), note=hide(each.note)) for each in story]
    shown = replace(
        job,
        payload=hide(job.payload),
        result=hide(job.result),
        error=hide(job.error),
        effects=effects,
        executions=executions,
    )
    return shown, replace(story, events=events, now=hide(story.now))


def _lines(job: Job, story: Story, now: datetime) -> Iterator[Text]:
    yield Text.assemble("job ", (job.job_id, "bold"))
    for label, value in _facts(job, now).items():
        text = Text(visible(value)) if isinstance(value, str) else value
        yield Text.assemble(f"  {label:<{_LABEL}}  ", text if text is not None else _NONE)
    for label, content in (("payload", job.payload), ("result", job.result), ("error", job.error)):
        if content is not None:
            yield Text(label)
            yield Text(indent(pretty(content), "  "))
    if job.effects:
        yield Text("effects")
    for effect in job.effects:
        yield from _effect(effect)
    yield Text("story")
    for event in story:
        yield Text(f"  {visible(line(event))}")
        if isinstance(event.error, dict) and event.error.get("traceback"):
            yield Text(indent(pretty(event.error["traceback"]), "    "))
    yield Text(f"  now: {visible(story.now)}")


def _effect(effect: Effect) -> Iterator[Text]:
    known = "" if effect.source is None else f", {effect.source}"
    arguments = "" if effect.arguments in (None, "[]") else f", arguments {effect.arguments}"
    moment = shown(effect.ended_at or effect.begun_at)
    style = STATE_STYLES["in_doubt"] if effect.state == "in_doubt" else ""
    said = Text(effect.state, style=style)
    told = f"{known}, {effect.verb}, {moment}{arguments}"
    yield Text.assemble("  ", (visible(effect.name), "bold"), "  ", said, visible(told))
    if effect.result is not None:
        yield Text(indent(pretty(effect.result), "    "))


def _questions(job: Job, options: Options) -> Iterator[Text]:
    """What can be copied, for whoever has found out."""
    doubted = [effect.name for effect in job.effects if effect.state == "in_doubt"]
    if job.state != "in_doubt" or not doubted:
        return
    place = "" if options.url is None else f" --url {quote(masked(options.url))}"
    if options.schema != DEFAULTS.schema:
        place += f" --schema {quote(options.schema)}"
    for name in doubted:
        yield Text(f"find out whether {visible(repr(name))} happened, and say so with one of")
        for word in ("--happened", "--did-not-happen"):
            yield Text(visible(f"  oncely resolve {job.job_id} {quote(name)} {word}{place}"))


def _facts(job: Job, now: datetime) -> dict[str, str | Text | None]:
    limit = "by policy" if job.max_attempts is None else str(job.max_attempts)
    return {
        "kind": job.kind,
        "queue": job.queue,
        "state": state_text(job.state),
        "priority": str(job.priority),
        "attempts": f"{job.attempt}, limit {limit}",
        "timeout": None if job.timeout is None else f"{job.timeout:g} seconds",
        "idempotency key": job.idempotency_key,
        "unique key": job.unique_key,
        "group key": job.group_key,
        "tags": ", ".join(job.tags) or None,
        "created": when(job.created_at, now),
        "due": when(job.due_at, now),
        "ended": "not yet" if job.ended_at is None else when(job.ended_at, now),
    }
