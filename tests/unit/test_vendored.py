import re
from hashlib import sha256
from pathlib import Path

import oncely.surface.dashboard as dashboard

STATIC = Path(dashboard.__file__).parent / "static"


def test_vendored_files_are_those_that_were_vendored() -> None:
    text = (STATIC / "VENDORED.md").read_text()
    listed = dict(re.findall(r"^\| (\S+) \|.*\| ([0-9a-f]{64}) \|$", text, re.MULTILINE))
    assert len(listed) == 4
    assert {name: sha256((STATIC / name).read_bytes()).hexdigest() for name in listed} == listed
    minified = {path.name for path in STATIC.glob("*.min.*")}
    assert minified == set(listed)
