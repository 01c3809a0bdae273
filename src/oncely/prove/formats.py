"""Reports for machines: annotations of GitHub, SARIF 2.1.0, JUnit XML, JSON."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree

import msgspec

from oncely.prove.report import Report, Violation, like_it
from oncely.prove.timeline import short

_RULES: Final = {
    "lost": "Something is missing, and the job counts as done",
    "doubled": "Something is there twice",
    "diverged": "Something else is there than one run leaves",
    "stuck": "The job does not come to its end by itself any more",
    "unobserved": "Not everything could be seen, so nothing is proved",
    "not deterministic": "Two clean runs leave different things",
}
_CONTROLS: Final = {code: "�" for code in range(32) if code not in (9, 10, 13)}
"""Characters that XML does not have."""


class ReportedFinding(msgspec.Struct, frozen=True):
    """What an annotation or a result stands for."""

    rule: str
    kind: str
    text: str
    details: str
    where: str | None = None
    is_known: bool = False

    @property
    def place(self) -> tuple[str, int] | None:
        if self.where is None:
            return None
        file, _, line = self.where.rpartition(":")
        return short(file), int(line)


def findings(report: Report) -> Iterator[ReportedFinding]:
    for first, *others in report.groups():
        details = first.timeline()
        if others:
            details += f"\n\n{like_it(others)}"
        yield _finding(report, first, details)
    for each in report.violations:
        if each.is_known:
            yield _finding(report, each, each.timeline())
    place = next((each.where for each in report.boundaries if each.where), None)
    if report.unequal:
        yield ReportedFinding("not deterministic", report.kind, report.sentence, str(report), place)
    elif report.is_incomplete:
        why = "; ".join([*report.unobserved, *(report.not_compared if report.strict else [])])
        text = f"{report.kind} is not proved: {why or report.sentence}"
        yield ReportedFinding("unobserved", report.kind, text, str(report), place)


def _finding(report: Report, violation: Violation, details: str) -> ReportedFinding:
    text = f"{report.kind} is {violation.verdict} if {violation.schedule.told}: {violation.advice}"
    return ReportedFinding(
        violation.verdict, report.kind, text, details, violation.where, violation.is_known
    )


def as_json(reports: Sequence[Report], *, is_list: bool) -> str:
    if not is_list:
        return msgspec.json.encode(reports[0].as_dict()).decode()
    told = {
        "ok": all(report.ok for report in reports),
        "reports": [report.as_dict() for report in reports],
    }
    return msgspec.json.encode(told).decode()


def as_github(reports: Sequence[Report]) -> str:
    """One annotation for each cause: an error, or a notice if the baseline has it."""
    lines = []
    for report in reports:
        for each in findings(report):
            level = "notice" if each.is_known else "error"
            options = {"title": f"{each.kind}: {each.rule}"}
            if each.place is not None:
                options = {"file": each.place[0], "line": str(each.place[1]), **options}
            told = ",".join(f"{name}={_escaped(v, ':,')}" for name, v in options.items())
            lines.append(f"::{level} {told}::{_escaped(each.text)}")
        lines += [f"::notice::gone since the baseline: {_escaped(each)}" for each in report.gone]
        lines.append(f"{report.kind}: {report.verdict}. {report.sentence}")
    return "\n".join(lines)


def _escaped(text: str, more: str = "") -> str:
    for char in f"%\r\n{more}":
        text = text.replace(char, f"%{ord(char):02X}")
    return text


def as_sarif(reports: Sequence[Report]) -> str:
    results = [_result(each) for report in reports for each in findings(report)]
    driver = {
        "name": "oncely prove",
        "version": version("oncely"),
        "rules": [
            {"id": _rule(name), "shortDescription": {"text": text}} for name, text in _RULES.items()
        ],
    }
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return msgspec.json.format(msgspec.json.encode(log), indent=2).decode()


def _result(finding: ReportedFinding) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": _rule(finding.rule),
        "level": "error",
        "message": {"text": f"{finding.text}\n\n{finding.details}"},
        "baselineState": "unchanged" if finding.is_known else "new",
    }
    if finding.place is not None:
        file, line = finding.place
        uri = PurePath(file).as_uri() if os.path.isabs(file) else quote(PurePath(file).as_posix())
        region = {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}
        result["locations"] = [{"physicalLocation": region}]
    return result


def _rule(name: str) -> str:
    return f"oncely/{name.replace(' ', '-')}"


def as_junit(reports: Sequence[Report]) -> str:
    """A case for each kind. What the baseline has is no failure, and stands in the output."""
    suite = ElementTree.Element(
        "testsuite",
        name="oncely prove",
        tests=str(len(reports)),
        failures=str(sum(not report.ok for report in reports)),
        errors="0",
        skipped="0",
        time=f"{sum(report.seconds for report in reports):.3f}",
    )
    for report in reports:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname="oncely.prove",
            name=report.kind,
            time=f"{report.seconds:.3f}",
        )
        text = str(report).translate(_CONTROLS)
        if report.ok:
            ElementTree.SubElement(case, "system-out").text = text
        else:
            failure = {"message": f"{report.kind}: {report.verdict}", "type": report.verdict}
            ElementTree.SubElement(case, "failure", failure).text = text
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True)


WRITERS: Final[dict[str, Callable[[Sequence[Report]], str]]] = {
    "github": as_github,
    "sarif": as_sarif,
    "junit": as_junit,
}
