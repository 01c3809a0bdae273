"""Handlers that make, move and remove files and folders."""

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

from tests.prove.zoo.entries import expect


def tree() -> list[str]:
    """All that is under shop/, with what is in it."""
    return [
        f"{path}: {path.read_text()}" if path.is_file() else f"{path}/"
        for path in sorted(Path("shop").rglob("*"))
    ]


def make_inbox() -> None:
    Path("shop/inbox").mkdir(parents=True)
    Path("shop/done").mkdir()
    Path("shop/inbox/order-1").write_text("tea")


TREE: dict[str, Any] = {"compare": (tree,), "prepare": make_inbox}


@expect("lost", "The mark is there before the work is done.", **TREE)
def exclusive_mark_first(order: str) -> None:
    try:
        open(f"shop/{order}.mark", "x").close()
    except FileExistsError:
        return
    Path(f"shop/done/{order}").write_text("shipped")


@expect("sound", "The mark is written last, and the work replaces what is there.", **TREE)
def mark_last(order: str) -> None:
    if Path(f"shop/{order}.mark").exists():
        return
    Path(f"shop/done/{order}").write_text("shipped")
    Path(f"shop/{order}.mark").touch()


@expect("stuck", "A folder as a lock stays when its owner dies.", **TREE)
def mkdir_as_lock(order: str) -> None:
    os.mkdir("lock")
    Path(f"shop/done/{order}").write_text("shipped")
    os.rmdir("lock")


@expect("lost", "Who finds the lock takes the work for done.", **TREE)
def mkdir_as_lock_and_skip(order: str) -> None:
    try:
        os.mkdir("lock")
    except FileExistsError:
        return
    Path(f"shop/done/{order}").write_text("shipped")
    os.rmdir("lock")


@expect("sound", "flock ends with its process, and the line is looked for under the lock.",
        **TREE)  # fmt: skip
def flock_and_replace(order: str) -> None:
    with open("shop.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        book = Path("shop/book")
        lines = book.read_text().split() if book.exists() else []
        if order not in lines:
            new = Path("shop/book.new")
            new.write_text(" ".join([*lines, order]))
            new.replace(book)


@expect("stuck", "What was moved is not there any more when the job comes again.", **TREE)
def move_file(order: str) -> None:
    shutil.move(f"shop/inbox/{order}", f"shop/done/{order}")


@expect("sound", "What is gone was moved.", **TREE)
def move_if_there(order: str) -> None:
    try:
        os.rename(f"shop/inbox/{order}", f"shop/done/{order}")
    except FileNotFoundError:
        if not Path(f"shop/done/{order}").exists():
            raise


@expect("sound", "The folder is removed and made anew.", **TREE)
def rebuild_folder(order: str) -> None:
    shutil.rmtree("shop/out", ignore_errors=True)
    os.makedirs("shop/out/pages")
    Path("shop/out/pages/index").write_text(order)


@expect("sound", "A copy replaces the copy, and what was copied is removed if it is there.",
        **TREE)  # fmt: skip
def copy_and_remove(order: str) -> None:
    source = Path(f"shop/inbox/{order}")
    if source.exists():
        shutil.copyfile(source, f"shop/done/{order}")
        source.unlink(missing_ok=True)


@expect("lost", "The inbox is emptied before the work is written.", **TREE)
def remove_then_write(order: str) -> None:
    source = Path(f"shop/inbox/{order}")
    if not source.exists():
        return
    text = source.read_text()
    source.unlink()
    Path(f"shop/done/{order}").write_text(text.upper())


@expect("sound", "A link that points to the newest release is replaced at once.", **TREE)
def switch_link(order: str) -> None:
    Path("shop/release-2").mkdir(exist_ok=True)
    new = Path("shop/current.new")
    new.unlink(missing_ok=True)
    new.symlink_to("release-2")
    new.replace("shop/current")


@expect("doubled", "The next free number is taken with each delivery.", **TREE)
def next_number(order: str) -> None:
    number = len(list(Path("shop/done").iterdir())) + 1
    Path(f"shop/done/{number}").write_text(order)
