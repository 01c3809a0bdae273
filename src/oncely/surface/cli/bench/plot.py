"""A bar chart as SVG, written by hand: one look, no library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

import msgspec

_WIDTH: Final = 860
_LEFT: Final = 300
_RIGHT: Final = 90
_ROW: Final = 30
_BAR: Final = 16
_TOP: Final = 64
STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}.title{font-size:16px;font-weight:600}"
    ".axis{fill:#6e7781;font-size:11px}.line{stroke:#d0d7de}.bar{fill:#0969da}.ours{fill:#1a7f37}"
    ".spread{stroke:#24292f}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.axis{fill:#8b949e}"
    ".line{stroke:#30363d}.spread{stroke:#e6edf3}}"
)


class Bar(msgspec.Struct, frozen=True):
    label: str
    value: float
    low: float | None = None
    high: float | None = None
    ours: bool = False


def chart(title: str, unit: str, bars: Sequence[Bar]) -> str:
    """On a logarithmic scale, for what is compared differs by orders of magnitude."""
    values = [v for bar in bars for v in (bar.value, bar.low, bar.high) if v is not None and v > 0]
    first = math.floor(math.log10(min(values))) if values else 0
    last = max(first + 1, math.ceil(math.log10(max(values)))) if values else 1
    height = _TOP + _ROW * len(bars) + 16

    def place(value: float) -> float:
        share = (math.log10(max(value, 10.0**first)) - first) / (last - first)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text class="title" x="12" y="24">{escape(title)}</text>',
        f'<text class="axis" x="12" y="44">{escape(unit)}, on a logarithmic scale</text>',
    ]
    for power in range(first, last + 1):
        x = place(10.0**power)
        parts.append(f'<line class="line" x1="{x:.1f}" y1="52" x2="{x:.1f}" y2="{height - 12}"/>')
        label = f"{10.0**power:,.0f}" if power >= 0 else f"{10.0**power:g}"
        parts.append(f'<text class="axis" x="{x:.1f}" y="48" text-anchor="middle">{label}</text>')
    for n, bar in enumerate(bars):
        y = _TOP + n * _ROW
        end = place(bar.value)
        middle = y + _BAR / 2
        kind = "ours" if bar.ours else "bar"
        parts.append(
            f'<text x="{_LEFT - 10}" y="{y + 13}" text-anchor="end">{escape(bar.label)}</text>'
            f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{max(1.0, end - _LEFT):.1f}" '
            f'height="{_BAR}" rx="2"/>'
        )
        if bar.low is not None and bar.high is not None:
            parts.append(
                f'<line class="spread" x1="{place(bar.low):.1f}" y1="{middle}" '
                f'x2="{place(bar.high):.1f}" y2="{middle}"/>'
            )
        beyond = max(end, place(bar.high) if bar.high is not None else end) + 6
        parts.append(f'<text x="{beyond:.1f}" y="{y + 13}">{shown(bar.value)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def shown(value: float) -> str:
    """Three digits, for nobody measures more."""
    if abs(value) >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
