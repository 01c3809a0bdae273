"""docs/reference/http.md and problems.md are complete: they list all calls and all codes."""

import re
from pathlib import Path

import msgspec

from oncely import InvalidInput, Oncely
from oncely.model.keys import check_key
from oncely.surface.http.endpoint import ALWAYS, GUARDED, WITH_BODY
from oncely.surface.http.openapi import document
from oncely.surface.http.problem import PROBLEMS
from oncely.surface.http.table import TABLE
from oncely.surface.http.types import KEY, Publish, QueuePolicy
from tests.surface.http.server import Client, in_thread

DOCS = Path(__file__).parents[3] / "docs"
HTTP = (DOCS / "reference/http.md").read_text()


def test_every_call_is_listed_with_its_scope_and_no_other() -> None:
    listed = re.findall(r"^\| (GET|PUT|POST) \| `([^`]+)` \| (\w+) \|", HTTP, re.MULTILINE)
    known = [(each.method, each.path, each.scope or "none") for each in TABLE]
    assert sorted(listed) == sorted([*known, ("GET", "/openapi.json", "none")])


def test_every_problem_is_explained_and_can_happen() -> None:
    page = (DOCS / "reference/problems.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \| (\d+) \| (yes|no) \|", page, re.MULTILINE)
    assert listed == [
        (code, str(each.status), "yes" if each.retryable else "no")
        for code, each in PROBLEMS.items()
    ]
    named = {code for each in TABLE for code in each.codes()} | ALWAYS | GUARDED | WITH_BODY
    assert set(PROBLEMS) - named == {"not_found", "method_not_allowed"}


def test_every_field_of_publish_and_policy_is_explained() -> None:
    for kind in (Publish, QueuePolicy):
        for field in msgspec.structs.fields(kind):
            assert re.search(rf"^\| [^|]*`{field.encode_name}`", HTTP, re.MULTILINE), field.name


def test_the_pattern_of_keys_is_what_is_taken() -> None:
    pattern = re.compile(str(KEY["pattern"]))

    def taken(key: str) -> bool:
        try:
            check_key(key, "key")
        except InvalidInput:
            return False
        return True

    letters = [chr(n) for n in (*range(0xD800), *range(0xE000, 0x11000))]
    for form in ("{}", "a{}b"):
        keys = [form.format(letter) for letter in letters]
        assert [key for key in keys if taken(key) != bool(pattern.fullmatch(key))] == []


def test_every_metric_is_listed(app: Oncely) -> None:
    page = (DOCS / "guide/server.md").read_text()
    with in_thread(app) as url, Client(url) as client:
        names = re.findall(r"^# TYPE (\w+) ", client.get("/metrics").text, re.MULTILINE)
    assert len(names) > 8
    assert [name for name in names if f"`{name}{{" not in page] == []


def test_the_document_describes_every_call_and_refers_to_what_is_there() -> None:
    made = document(TABLE)
    operations = {
        (method.upper(), path): operation
        for path, methods in made["paths"].items()
        for method, operation in methods.items()
    }
    assert set(operations) == {(each.method, each.path) for each in TABLE}
    names = [operation["operationId"] for operation in operations.values()]
    assert len(set(names)) == len(names)
    refs = set(re.findall(r'"#/components/schemas/([^"]+)"', msgspec.json.encode(made).decode()))
    assert refs <= set(made["components"]["schemas"])
