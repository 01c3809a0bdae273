"""Handlers that write files: append, replace, records in a file."""

import csv
import gzip
import json
import logging
import os
import pickle
import shelve
import tempfile
import zipfile
import zlib
from dbm import dumb
from pathlib import Path
from typing import Any

from tests.prove.zoo.entries import expect

BOOK = Path("book.txt")


def book() -> list[str]:
    return BOOK.read_text().splitlines() if BOOK.exists() else []


def whole_book() -> str:
    return BOOK.read_text() if BOOK.exists() else "none"


LINES: dict[str, Any] = {"compare": (book,)}
WHOLE: dict[str, Any] = {"compare": (whole_book,)}


@expect("doubled", "Each delivery appends a line.", **LINES)
def append_line(order: str) -> None:
    with BOOK.open("a") as file:
        file.write(f"{order} paid\n")


@expect("doubled", "os.write to a file that is open for appending.", **LINES)
def append_by_descriptor(order: str) -> None:
    file = os.open(BOOK, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{order}\n".encode())
    os.close(file)


@expect("doubled", "Two workers look at the file before either appends.", **LINES)
def append_if_missing(order: str) -> None:
    if order not in book():
        with BOOK.open("a") as file:
            file.write(f"{order}\n")


@expect("sound", "The whole file is written again.", **WHOLE)
def write_whole(order: str) -> None:
    BOOK.write_text(f"{order}: paid, 990 cents\n")


@expect("sound", "Written beside, synced, and renamed.", **WHOLE)
def write_and_rename(order: str) -> None:
    beside = BOOK.with_suffix(".tmp")
    with beside.open("w") as file:
        file.write(f"{order}: paid\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, BOOK)


@expect("sound", "A temporary file with a random name takes the place of the book.", **WHOLE)
def write_named_temporary(order: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as file:
        json.dump({"order": order, "state": "paid"}, file)
    os.replace(file.name, BOOK)


@expect("diverged", "The file is there when it is opened, and an empty one is taken for done.",
        **WHOLE)  # fmt: skip
def write_if_missing(order: str) -> None:
    if BOOK.exists():
        return
    BOOK.write_text(f"{order}: paid, 990 cents\n")


@expect("sound", "A link is made only of a whole file, and only once.", **WHOLE)
def link_when_whole(order: str) -> None:
    beside = Path(f"book.{os.getpid()}")
    beside.write_text(f"{order}: paid\n")
    try:
        os.link(beside, BOOK)
    except FileExistsError:
        pass
    finally:
        beside.unlink()


@expect("doubled", "A counter in a file is read, raised and written.", **WHOLE)
def counter_in_json(order: str) -> None:
    counts = json.loads(BOOK.read_text()) if BOOK.exists() else {"orders": 0}
    counts["orders"] += 1
    beside = Path("book.new")
    beside.write_text(json.dumps(counts))
    beside.replace(BOOK)


@expect("sound", "A dict in a file gets the order under its key.", **WHOLE)
def dict_in_json(order: str) -> None:
    orders = json.loads(BOOK.read_text()) if BOOK.exists() else {}
    orders[order] = "paid"
    beside = Path("book.new")
    beside.write_text(json.dumps(orders))
    beside.replace(BOOK)


@expect("stuck", "A half of a JSON file cannot be read again.", **WHOLE)
def dict_in_json_in_place(order: str) -> None:
    orders = json.loads(BOOK.read_text()) if BOOK.exists() else {}
    orders[order] = "paid"
    with BOOK.open("w") as file:
        json.dump(orders, file)


@expect("doubled", "A row of CSV with each delivery.", **LINES)
def append_csv(order: str) -> None:
    with BOOK.open("a", newline="") as file:
        csv.writer(file).writerow([order, 990])


def unzipped() -> list[str]:
    try:
        with gzip.open("log.gz", "rt") as file:
            return file.read().split()
    except (EOFError, zlib.error):  # without the second one the proof was refused
        return ["cut"]


@expect("doubled", "A second member of the archive has the same text.", compare=(unzipped,),
        prepare=lambda: gzip.open("log.gz", "wt").close())  # fmt: skip
def append_gzip(order: str) -> None:
    with gzip.open("log.gz", "at") as file:
        file.write(f"{order}\n")


def names_in_zip() -> list[str]:
    with zipfile.ZipFile("orders.zip") as archive:
        return archive.namelist()


@expect("sound", "The archive is written anew, and replaced.", compare=(names_in_zip,),
        prepare=lambda: zipfile.ZipFile("orders.zip", "w").close())  # fmt: skip
def write_zip(order: str) -> None:
    with zipfile.ZipFile("orders.tmp", "w") as archive:
        archive.writestr(f"{order}.txt", "paid")
    os.replace("orders.tmp", "orders.zip")


@expect("doubled", "The state is pickled after the line was appended.", **LINES)
def pickled_state(order: str) -> None:
    state = Path("state.pickle")
    seen = pickle.loads(state.read_bytes()) if state.exists() else set()
    if order in seen:
        return
    with BOOK.open("a") as file:
        file.write(f"{order}\n")
    state.write_bytes(pickle.dumps(seen | {order}))


def open_shelf() -> shelve.Shelf[Any]:
    database: Any = dumb.open("shelf")  # noqa: SIM115
    return shelve.Shelf(database)


def shelf() -> dict[str, Any]:
    try:
        with open_shelf() as file:
            return dict(file)
    except (SyntaxError, ValueError):
        return {"cut": True}


@expect("doubled", "A number on a shelf is raised by each delivery.", compare=(shelf,),
        prepare=shelf)  # fmt: skip
def count_on_shelf(order: str) -> None:
    with open_shelf() as file:
        file["orders"] = file.get("orders", 0) + 1


# Doubled was expected at first. But logging is off in a proof, for the log of a whole program is no
# effect of its handlers, so that no run leaves a line, and the report says so.
@expect("unobserved", "Logging is off in a proof, so that nothing is left to compare.", **LINES)
def log_to_file(order: str) -> None:
    target = logging.FileHandler(BOOK)
    logger = logging.getLogger("shop")
    logger.setLevel("INFO")
    logger.addHandler(target)
    logger.info("paid %s", order)
    target.close()


@expect("doubled", "Unbuffered: each write is one of its own.", **LINES)
def unbuffered(order: str) -> None:
    with open(BOOK, "ab", buffering=0) as file:
        file.write(order.encode())
        file.write(b"\n")
