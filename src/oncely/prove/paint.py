"""The report in colours, for a terminal. The words are those of `str(report)`."""

from __future__ import annotations

from typing import Final

from rich.text import Text

from oncely.prove.report import Report
from oncely.surface.cli.say import visible

_VERDICTS: Final = {
    "sound": "bold green",
    "held": "bold magenta",
    "unobserved": "bold yellow",
    "not deterministic": "bold yellow",
}
_STYLES: Final = {
    "│": "dim",
    r"\bdelivery \d+( goes on)?|those after it": "bold",
    r"✗[^│\n]*": "bold red",
    r"‖[^│\n]*": "bold yellow",
    r"→ 2\d\d\b": "green",
    r"→ [45]\d\d\b": "red",
    r"[^\s│]+\.py:\d+": "dim cyan",
    r"(?m)^    (missing|too many|once|and once) .*$": "red",
    r"schedule='[^'\n]*'": "bold cyan",
    r"(?m)^(unobserved|declared risk|not covered):": "bold yellow",
    r"`[^`\n]+`": "cyan",
}


def painted(report: Report) -> Text:
    text = Text(visible(str(report)))
    for pattern, style in _STYLES.items():
        text.highlight_regex(pattern, style)
    first = str(text).partition("\n")[0]
    text.stylize("bold", 0, len(first))
    text.stylize(_VERDICTS.get(report.verdict, "bold red"), first.rindex(":") + 2, len(first))
    for line in str(text).splitlines()[1:]:
        if line.startswith(f"{report.verdict}: "):
            start = str(text).index(f"\n{line}") + 1
            text.stylize(
                _VERDICTS.get(report.verdict, "bold red"), start, start + len(report.verdict)
            )
            break
    return text
