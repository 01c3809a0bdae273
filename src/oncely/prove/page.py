"""The report as a page that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from oncely.prove.report import Report, Violation, like_it
from oncely.prove.timeline import Lane, Step, short

_ROW: Final = 34
_LANE: Final = 460
_COLOURS: Final = {
    "sound": "#1a7f37",
    "held": "#8250df",
    "unobserved": "#9a6700",
    "not deterministic": "#9a6700",
}
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem;
  color: #1f2328; background: #fff; }
h1 small { font-weight: normal; }
pre { background: #f6f8fa; padding: .7rem; overflow-x: auto; }
svg { max-width: 100%; height: auto; }
svg text { font: 12px ui-monospace, monospace; fill: #1f2328; }
svg .where { fill: #59636e; font-size: 10px; }
svg .fault { fill: #cf222e; font-weight: bold; }
@media (prefers-color-scheme: dark) {
  body { color: #e6edf3; background: #0d1117; } pre { background: #161b22; }
  svg text { fill: #e6edf3; } svg .where { fill: #9198a1; } svg .fault { fill: #ff7b72; }
}
"""


def page(reports: Sequence[Report]) -> str:
    title = ", ".join(f"{report.kind}: {report.verdict}" for report in reports)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
    ]
    for report in reports:
        parts += _section(report)
    return "\n".join([*parts, "</html>"])


def _section(report: Report) -> list[str]:
    colour = _COLOURS.get(report.verdict, "#cf222e")
    parts = [
        f'<h1>{escape(report.kind)} <small style="color:{colour}">{report.verdict}</small></h1>',
        f"<p>{escape(report.sentence)}</p>",
    ]
    for first, *others in report.groups():
        parts.append(_violation(first))
        if others:
            parts.append(f"<p>{escape(like_it(others))}</p>")
    gaps = [line for gap in report._gaps() for line in gap.splitlines()]
    if gaps:
        parts.append("<h2>Compared, and not covered</h2><ul>")
        parts += [f"<li>{escape(line)}</li>" for line in gaps]
        parts.append("</ul>")
    parts.append("<h2>Boundaries</h2><ol start=0>")
    for each in report.boundaries:
        where = f" <small>{escape(short(each.where))}</small>" if each.where else ""
        parts.append(f"<li><code>{escape(each.name)}</code>{where}</li>")
    return [*parts, "</ol>"]


def _violation(violation: Violation) -> str:
    changes = [
        f"{each.label}\n" + "".join(f"  {line}\n" for line in each.lines)
        for each in violation.differences
    ]
    return (
        f"<h2>{violation.verdict}: {escape(violation.schedule.told)}</h2>"
        f"{_drawn(violation.lanes)}"
        f"<pre>{escape(''.join(changes))}the job is {escape(violation.ended)}</pre>"
        f"<p>{escape(violation.advice)}</p>"
        f"<p>Play it again: <code>schedule={escape(repr(violation.token))}</code></p>"
    )


def _drawn(lanes: list[Lane]) -> str:
    """Time goes down; the delivery that met the fault is on the left, the others on the right."""
    shapes: list[str] = []
    y = _ROW
    for number, lane in enumerate(lanes):
        if not lane.steps:
            continue
        left = number == 0 or lane.title.endswith("goes on")
        x = 20 if left else 20 + _LANE
        top = y
        shapes.append(f'<text x="{x + 14}" y="{y}" font-weight="bold">{escape(lane.title)}</text>')
        y += _ROW
        for step in lane.steps:
            kind = ' class="fault"' if step.is_fault else ""
            fill = "#cf222e" if step.is_fault else "#0969da"
            shapes.append(f'<circle cx="{x}" cy="{y - 4}" r="5" fill="{fill}"/>')
            shapes.append(f'<text x="{x + 14}" y="{y}"{kind}>{escape(_numbered(step))}</text>')
            if step.where:
                place = escape(short(step.where)[-70:])
                shapes.append(f'<text x="{x + 14}" y="{y + 13}" class="where">{place}</text>')
            y += _ROW
        shapes.append(
            f'<line x1="{x}" y1="{top + 10}" x2="{x}" y2="{y - _ROW - 4}" stroke="#8c959f"/>'
        )
    width = 2 * _LANE + 20
    return (
        f'<svg viewBox="0 0 {width} {y}" width="{width}" role="img" '
        f'aria-label="the deliveries, in order">{"".join(shapes)}</svg>'
    )


def _numbered(step: Step) -> str:
    return step.text[:62] if step.number is None else f"{step.number} {step.text[:60]}"
