"""Put the figures of the last runs into docs/guide/performance.md, with plots.

    make bench                                                    # writes bench/RESULTS.md
    .venv/bin/python -m bench.lasting --json bench/lasting.json   # does it stay fast
    .venv/bin/python -m bench.plots

Nothing is typed by hand: what stands between the marks of that page comes from these files, and is
written anew. A file that is not there is named on the page.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from oncely.surface.cli.bench.plot import STYLE, Bar, chart, shown

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "bench/RESULTS.md"
LASTING: Final = ROOT / "bench/lasting.json"
PAGE: Final = ROOT / "docs/guide/performance.md"
IMAGES: Final = ROOT / "docs/guide/images"
MARKS: Final = ("<!-- figures: begin -->", "<!-- figures: end -->")
COLORS: Final = ("#0969da", "#1a7f37", "#cf222e", "#8250df", "#bf8700")
Table = list[dict[str, str]]


def sections(text: str) -> dict[str, str]:
    return dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))


def table(section: str) -> Table:
    """The first table of a section; each row by its heads."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    if len(rows) < 3:
        return []
    head = rows[0]
    return [dict(zip(head, row, strict=False)) for row in rows[2:]]


def figure(cell: str) -> tuple[float, float | None, float | None] | None:
    """A median with least and most in brackets; two of which the first counts; or no figure."""
    numbers = [float(found.replace(",", "")) for found in re.findall(r"\d[\d,]*(?:\.\d+)?", cell)]
    if not numbers:
        return None
    if "(" in cell and len(numbers) == 3:
        return numbers[0], numbers[1], numbers[2]
    return numbers[0], None, None


def bars(rows: Table, column: str) -> list[Bar]:
    """The highest first; for a latency the lowest."""
    found = []
    for row in rows:
        name = next(iter(row.values()))
        if (value := figure(row.get(column, ""))) is not None:
            found.append(Bar(name.strip("*"), *value, ours="**" in name))
    return sorted(found, key=lambda bar: bar.value if "ms" in column else -bar.value)


def against_peers(results: str) -> Iterator[str]:
    parts = sections(results)
    speeds = table(parts.get("Jobs per second", ""))
    IMAGES.mkdir(parents=True, exist_ok=True)
    for n, column in enumerate(list(speeds[0])[1:] if speeds else []):
        if len(drawn := bars(speeds, column)) < 2:
            continue
        unit = "milliseconds, p50: shorter is better" if "ms" in column else "jobs/s"
        file = IMAGES / f"peers-{n + 1}.svg"
        file.write_text(chart(column[0].upper() + column[1:], unit, drawn), encoding="utf-8")
        yield f"![{column}](images/{file.name})\n"
    if "Goals" in parts:
        yield f"### Goals\n\n{parts['Goals'].strip()}\n"
    yield "All figures, with versions and settings: [bench/RESULTS.md](../../bench/RESULTS.md).\n"


def over_time(lasting: dict[str, Any]) -> Iterator[str]:
    scenes = lasting["scenes"]
    jobs = f"{lasting['jobs']:,}"
    IMAGES.mkdir(parents=True, exist_ok=True)
    rates = {name: _burdened(name, scene) for name, scene in scenes.items()}
    file = IMAGES / "lasting.svg"
    file.write_text(curves(f"{jobs} jobs in each scene, one round after the other", rates))
    yield f"![rates of the rounds](images/{file.name})\n"
    yield "| scene | first round, jobs/s | last round, jobs/s | ratio | largest on disk |"
    yield "|---|---|---|---|---|"
    for name, scene in scenes.items():
        rounds = rates[name]
        size = max(scene["bytes"].items(), key=lambda item: item[1], default=("-", 0))
        yield (
            f"| {name} | {rounds[0]:,} | {rounds[-1]:,} | {scene['ratio']:.2f} | "
            f"{size[0]}, {size[1] / 1e6:,.0f} MB |"
        )
    yield ""


def _burdened(name: str, scene: dict[str, Any]) -> list[int]:
    """Where plain rounds were taken in turns, only those with the burden."""
    rates: list[int] = scene["rates"]
    return rates[1::2] if name in ("kept", "groups", "limited") else rates


def curves(title: str, rates: dict[str, list[int]]) -> str:
    """Lines over the rounds, from zero, so that a fall looks as large as it is."""
    width, height, left, top = 860, 360, 70, 60
    most = max(max(values) for values in rates.values())
    step = 10.0 ** math.floor(math.log10(most))
    ceiling = math.ceil(most / step) * step
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text class="title" x="12" y="24">{escape(title)}</text>',
        '<text class="axis" x="12" y="44">jobs/s</text>',
    ]

    def y(value: float) -> float:
        return height - 30 - value / ceiling * (height - 30 - top)

    for n in range(6):
        value = ceiling * n / 5
        parts.append(f'<line class="line" x1="{left}" y1="{y(value)}" x2="720" y2="{y(value)}"/>')
        parts.append(
            f'<text class="axis" x="{left - 8}" y="{y(value) + 4}" text-anchor="end">'
            f"{shown(value)}</text>"
        )
    for n, (name, values) in enumerate(rates.items()):
        color = COLORS[n % len(COLORS)]
        across = (720 - left) / max(1, len(values) - 1)
        points = " ".join(f"{left + i * across:.1f},{y(v):.1f}" for i, v in enumerate(values))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>'
            f'<text x="730" y="{top + 20 * n}" style="fill:{color}">{escape(name)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def filled(page: str, figures: Sequence[str]) -> str:
    begin, end = MARKS
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n" + "\n".join(figures).strip() + f"\n\n{end}{after}"


def main() -> None:
    figures = ["### Beside its peers\n"]
    if RESULTS.exists():
        figures += against_peers(RESULTS.read_text(encoding="utf-8"))
    else:
        figures.append("Not measured yet: `make bench`, then `python -m bench.plots`.\n")
    figures.append("### Over time\n")
    if LASTING.exists():
        figures += over_time(json.loads(LASTING.read_text(encoding="utf-8")))
    else:
        figures.append(
            "Not measured yet: `python -m bench.lasting --json bench/lasting.json`, then "
            "`python -m bench.plots`.\n"
        )
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")
    print(f"filled {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
