"""The other sides of the examples, small enough to read. Each keeps what it did in a file."""

import json
from pathlib import Path
from typing import Any

from oncely import Oncely


def for_driver(app: Oncely, sql: str) -> str:
    """The drivers of the two engines mark a parameter in their own way."""
    return sql.replace("?", "%s") if app.url.startswith("postgres") else sql


class Service:
    """Does what it is asked, each time it is asked."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / f"{name}.jsonl"

    def do(self, *what: Any) -> None:
        with self._file.open("a") as file:
            file.write(f"{json.dumps(what)}\n")

    def done(self) -> list[Any]:
        if not self._file.exists():
            return []
        return [tuple(json.loads(line)) for line in self._file.read_text().splitlines()]


class Mail(Service):
    """Takes no key, but can be asked what it has sent."""

    def send(self, to: str, template: str) -> None:
        self.do(to, template)

    def find(self, to: str, template: str) -> bool:
        return (to, template) in self.done()


class Payments(Service):
    """Takes a key, and answers a repeat with what it said the first time."""

    def charge(self, customer: str, cents: int, key: str) -> str:
        if all(known != key for _, _, known in self.done()):
            self.do(customer, cents, key)
        return f"charged {cents}"


class Storage(Service):
    """What is put under a name replaces what was there."""

    def put(self, name: str, content: str) -> str:
        if (name, content) not in self.done():
            self.do(name, content)
        return f"storage://{name}"


class Index(Service):
    """What is put under an id replaces what was there, if it is newer."""

    def put(self, id: str, version: int, content: str) -> None:
        if all(version > known for known_id, known, _ in self.done() if known_id == id):
            self.do(id, version, content)
