"""Each write to a file is a boundary, by whatever call it is made."""

import mmap
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from oncely import Context
from oncely.prove import Report, Table, prove
from tests.prove.schedules import one_schedule
from tests.prove.test_honest import Bench, bench

__all__ = ["bench"]


def unbuffered(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(b"one\n")
        file.write(b"two\n")


def flushed(path: Path) -> None:
    with path.open("a") as file:
        file.write("one\n")
        file.flush()
        file.write("two\n")


def never_closed(path: Path) -> None:
    file = path.open("a")
    file.write("one\n")
    file.flush()
    file.write("two\n")
    del file


def by_descriptor(path: Path) -> None:
    number = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(number, b"one\n")
    os.write(number, b"two\n")
    os.close(number)


def of_a_descriptor(path: Path) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "w") as file:
        print("one", file=file, flush=True)
        print("two", file=file)


def at_a_place(path: Path) -> None:
    number = os.open(path, os.O_RDWR)
    size = os.fstat(number).st_size
    os.pwrite(number, b"one\n", size)
    os.pwritev(number, [b"tw", b"o\n"], size + 4)
    os.close(number)


def several(path: Path) -> None:
    number = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.writev(number, [b"one\n"])
    os.writev(number, [b"two\n"])
    os.close(number)


def names(report: Report) -> list[str]:
    return [each.name.partition(" ")[0] for each in report.boundaries if each.channel == "file"]


TWICE = [unbuffered, flushed, never_closed, by_descriptor, of_a_descriptor, at_a_place, several]


def prove_on_file(bench: Bench, write: Callable[[Path], None], **options: object) -> Report:
    path = bench.folder / "log"
    path.write_text("")

    def handler(ctx: Context) -> None:
        if not path.read_text():
            write(path)

    def lines() -> list[str]:
        return path.read_text().split()

    report = bench.prove(handler, lines, **options)
    assert path.read_text() == ""
    return report


@pytest.mark.parametrize("write", TWICE)
def test_half_of_what_is_written_is_found(bench: Bench, write: Callable[[Path], None]) -> None:
    report = prove_on_file(bench, write, schedule=one_schedule("crash@3"))
    assert report.unobserved == []
    assert {each.verdict for each in report.violations} >= {"lost"}, str(report)
    assert names(report) == ["open", "write", "write"]


def copied(path: Path) -> None:
    part = path.with_name("part")
    part.write_text("one\ntwo\n")
    shutil.copyfile(part, path)


def test_a_copy_that_is_begun_is_found(bench: Bench) -> None:
    """The file is empty before its content is sent to it."""
    path = bench.folder / "log"

    def handler(ctx: Context) -> None:
        if not path.exists():
            copied(path)

    def lines() -> list[str]:
        return path.read_text().split() if path.exists() else ["nothing"]

    report = bench.prove(handler, lines, schedule=one_schedule("crash@4"))
    assert report.unobserved == []
    assert any(each.verdict == "lost" for each in report.violations), str(report)


def renamed(path: Path) -> None:
    part = path.with_name("part")
    number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(number, b"one\n")
    os.write(number, b"two\n")
    os.close(number)
    os.replace(part, path)


def test_a_file_that_is_put_in_place_whole_is_sound(bench: Bench) -> None:
    report = prove_on_file(bench, renamed, schedule=one_schedule("crash@3"))
    assert report.verdict == "sound", str(report)
    assert names(report) == ["open", "write", "write", "rename"]


def test_a_lock_file_is_no_unseen_write(bench: Bench) -> None:
    def locked(path: Path) -> None:
        lock = path.with_name("lock")
        os.close(os.open(lock, os.O_CREAT | os.O_WRONLY))
        renamed(path)

    report = prove_on_file(bench, locked, schedule=one_schedule("crash@5"))
    assert report.verdict == "sound", str(report)


def test_a_large_file_is_a_few_boundaries(bench: Bench) -> None:
    def large(path: Path) -> None:
        with path.with_name("part").open("w") as file:
            for number in range(100_000):
                file.write(f"{number}\n")
        path.with_name("part").replace(path)

    report = prove_on_file(bench, large, schedule="crash@0")
    assert len([each for each in report.boundaries if each.channel == "file"]) <= 5


def test_a_file_in_memory_is_named(bench: Bench) -> None:
    def mapped(path: Path) -> None:
        path.write_bytes(b"one\n")
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            memory[:3] = b"two"

    report = prove_on_file(bench, mapped, schedule="crash@0")
    assert report.verdict == "unobserved"
    assert f"{bench.folder / 'log'} is mapped to memory" in str(report)


def test_a_file_that_was_in_memory_before_is_named_and_put_back(bench: Bench) -> None:
    path = bench.folder / "counts"
    path.write_bytes(b"0" * 100)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:

        def counted(ctx: Context) -> None:
            memory[:1] = b"1"
            bench.write("update accounts set cents = 0")

        report = bench.prove(counted, schedule="crash@0")
        assert report.verdict == "unobserved"
        assert f"{path} is mapped to memory" in str(report)
        assert path.read_bytes() == b"0" * 100
        bench.app.job("quiet")(lambda ctx: bench.write("update accounts set cents = 0"))
        world = [Table(bench.url, "accounts")]
        quiet = prove(bench.app, "quiet", world=world, schedule="crash@0")
        assert quiet.ok, str(quiet)
