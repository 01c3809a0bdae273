"""What a process leaves that ends at a boundary is taken from one that stands still there. It is
the same as if it had ended."""

import sqlite3
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncely import Context, Oncely, Retry
from oncely.prove import Downstream, Table
from oncely.prove.checkpoints import Checkpoints
from oncely.prove.child import Child, Delivery
from oncely.prove.faults import unlike
from oncely.prove.play import Play
from oncely.prove.schedule import Move, Schedule
from oncely.prove.stage import Stage
from oncely.prove.timeline import draw, lanes_of
from oncely.prove.watch import Act
from oncely.prove.world import WorldItem
from tests.waiting import PATIENCE_SECONDS

AT_ONCE = Retry(base=0, max_attempts=20)
HANDLERS = (
    "in_two_transactions", "in_one_transaction", "posted", "in_a_fence", "in_two_threads",
    "in_a_file",
)  # fmt: skip


class Shop:
    """Handlers that leave something at each of their boundaries."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.app = Oncely(url)
        self.app.migrate()
        self.bank = Downstream()
        self.on_postgres = url.startswith("postgres")
        self.rows = url if self.on_postgres else f"sqlite:///{folder / 'rows.db'}"
        with closing(self.connect()) as db:
            if not self.on_postgres:
                db.execute("pragma journal_mode = wal")
            db.execute("create table paid (who text)")
            db.execute("create table seen (who text primary key)")
            db.commit()
        for name in HANDLERS:
            self.app.job(name, retry=AT_ONCE)(getattr(self, name))

    def connect(self) -> Any:
        if self.on_postgres:
            return psycopg.connect(self.url)
        return sqlite3.connect(
            self.folder / "rows.db", timeout=PATIENCE_SECONDS, check_same_thread=False
        )

    def post(self) -> None:
        urllib.request.urlopen(self.bank.url, b"ann", timeout=PATIENCE_SECONDS).close()

    def in_two_transactions(self, _: Context, who: str) -> None:
        """A crash between them loses the payment."""
        with closing(self.connect()) as db:
            if db.execute("select 1 from seen").fetchone() is None:
                db.execute(f"insert into seen values ('{who}')")
                db.commit()
                db.execute(f"insert into paid values ('{who}')")
                db.commit()

    def in_one_transaction(self, _: Context, who: str) -> None:
        with closing(self.connect()) as db:
            if db.execute("select 1 from seen").fetchone() is None:
                db.execute(f"insert into seen values ('{who}')")
                db.execute(f"insert into paid values ('{who}')")
                db.commit()

    def in_a_fence(self, ctx: Context, who: str) -> None:
        del who
        ctx.fence("post", self.post)

    def posted(self, _: Context, who: str) -> None:
        self.post()
        with closing(self.connect()) as db:
            db.execute(f"insert into paid values ('{who}')")
            db.commit()

    def in_two_threads(self, ctx: Context, who: str) -> None:
        one = threading.Thread(target=self.post)
        one.start()
        self.in_one_transaction(ctx, who)
        one.join()

    def in_a_file(self, ctx: Context, who: str) -> None:
        (self.folder / "note.txt").write_text(who)
        self.in_one_transaction(ctx, who)

    def close(self) -> None:
        self.app.close()
        self.bank.close()


@pytest.fixture
def shop(tmp_path: Path, url: str) -> Iterator[Shop]:
    shop = Shop(tmp_path, url)
    yield shop
    shop.close()


class Counted(Stage):
    """Counts the processes that it starts."""

    processes = 0

    def forget_checkpoints(self) -> None:
        self._held = None
        self._checkpoints = Checkpoints(self.ground, self.ground.copies.checkpoints / "again")

    def _start(self, act: Act | None, deliveries: list[Delivery]) -> Child:
        self.processes += 1
        return super()._start(act, deliveries)

    def play_counted(self, schedule: Schedule, *, records: bool = False) -> tuple[int, Play]:
        before = self.processes
        play = self.play(schedule, records=records)
        return self.processes - before, play


def stage_of(shop: Shop, name: str) -> Counted:
    world: list[WorldItem] = [Table(shop.rows, "paid"), Table(shop.rows, "seen"), shop.bank]
    return Counted(shop.app, name, "ann", world)


def left_by(play: Play) -> Any:
    """What is left, and the story of it."""
    lanes = lanes_of(play.schedule, play.deliveries)
    return play.job.state, play.job.attempt, play.world, play.reached, draw(lanes)


def crashes_at(play: Play, delivery: int) -> list[Move]:
    boundaries = play.deliveries[delivery].boundaries
    return [Move("crash", each.number) for each in unlike(boundaries)]


@pytest.mark.parametrize("name", ["in_two_transactions", "posted"])
def test_the_same_is_left_as_by_a_process_that_ended(shop: Shop, name: str) -> None:
    with closing(stage_of(shop, name)) as stage:
        clean = stage.play(Schedule(), records=True)
        schedules = []
        for first in crashes_at(clean, 0):
            schedules += [Schedule((first,)), Schedule((Move("late", first.at),))]
            _, play = stage.play_counted(schedules[-2], records=True)
            schedules += [Schedule((first, second)) for second in crashes_at(play, 1)]
        saved = {each: stage.play_counted(each) for each in schedules}
        assert {processes for processes, _ in saved.values()} == {1}
        stage.forget_checkpoints()
        for each in schedules:
            processes, play = stage.play_counted(each)
            assert processes == 1 + len(each.moves)
            assert left_by(play) == left_by(saved[each][1]), each


def test_one_that_is_in_doubt_goes_on_from_there(shop: Shop) -> None:
    with closing(stage_of(shop, "in_a_fence")) as stage:
        clean = stage.play(Schedule(), records=True)
        at = next(each.number for each in clean.deliveries[0].boundaries if each.channel == "http")
        play = stage.play(Schedule((Move("crash", at),)))
        assert play.job.state == "in_doubt"
        before = stage.processes
        answered = [stage.answer(play, happened=each) for each in (True, False)]
        assert stage.processes - before == 2
        stage.forget_checkpoints()
        again = [stage.answer(play, happened=each) for each in (True, False)]
        assert [left_by(each) for each in answered] == [left_by(each) for each in again]
        assert [len(each.world[f"downstream {shop.bank.url}"]) for each in again] == [0, 1]


@pytest.mark.parametrize("name", ["in_two_threads", "in_a_file"])
def test_what_is_not_saved_is_run_again(shop: Shop, name: str) -> None:
    """A request of another thread may be on its way, and a file is the user's own."""
    with closing(stage_of(shop, name)) as stage:
        clean = stage.play(Schedule(), records=True)
        last = crashes_at(clean, 0)[-1]
        processes, play = stage.play_counted(Schedule((last,)))
        assert (processes, play.reached) == (2, True)
