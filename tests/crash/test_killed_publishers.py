"""Publishers that are killed again and again, and start over with the same keys."""

import signal
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import cast

from oncely import Oncely
from tests.crash.checker import Census, check, connect
from tests.crash.fleet import start
from tests.crash.load import times
from tests.crash.publishers import (
    BATCH,
    MOST_AT_ONCE,
    Call,
    acknowledged,
    calls,
    publish,
    publish_batches,
)
from tests.seed import dice
from tests.waiting import PATIENCE_SECONDS, wait_until

N = times(300, usually=120)
ROUNDS = times(12, usually=4)


class Publisher:
    """A process with a list of work, ended at random moments until the work is done."""

    def __init__(self, url: str, log: Path, batches: Sequence[Sequence[Call]]) -> None:
        self.batches = batches
        self.log = log
        self.log.touch()
        self.kills = 0
        self._url = url
        self._start()

    def _start(self) -> None:
        name = f"{self.log.name}-{self.kills}"
        self._process = start(publish, self._url, str(self.log), self.batches, name)

    @property
    def fewest_kills(self) -> int:
        """However quick it is: it is let do so much in one life, and no more."""
        return (len(self.batches) - 1) // (2 * MOST_AT_ONCE - 1)

    @property
    def sentinel(self) -> int:
        """Ready when the process has ended."""
        return self._process.sentinel

    def goes_on(self) -> bool:
        """In another process. One that ended by itself must have done its work."""
        self._process.join()
        if self._process.exitcode == 0:
            return False
        assert self._process.exitcode == -signal.SIGALRM, f"a publisher failed, see: {self.log}"
        self.kills += 1
        self._start()
        return True

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def kill_until_done(publishers: Sequence[Publisher]) -> int:
    """In one thread: who starts a process also asks after the end of all others, and of two who ask
    at once only one is told how a process has ended."""
    living = {publisher.sentinel: publisher for publisher in publishers}
    try:
        while living:
            ended = wait(list(living), PATIENCE_SECONDS)
            assert ended, f"neither done nor killed, see: {[each.log for each in living.values()]}"
            for publisher in [living.pop(cast(int, sentinel)) for sentinel in ended]:
                if publisher.goes_on():
                    living[publisher.sentinel] = publisher
    finally:
        for publisher in publishers:
            publisher.end()
    return sum(publisher.kills for publisher in publishers)


def assert_acknowledged(census: Census, publishers: Sequence[Publisher], context: str) -> None:
    """Whatever was acknowledged, before or after a kill, is there under that id."""
    owner = {(job.idempotency_key, job.unique_key): id for id, job in census.jobs.items()}
    for publisher in publishers:
        for line in acknowledged(str(publisher.log)):
            number, _, *ids = line.split()
            batch = publisher.batches[int(number)]
            assert ids == [owner.get((c.idempotency_key, c.unique_key)) for c in batch], context


def test_publishes_cut_off_in_the_middle(app: Oncely, tmp_path: Path) -> None:
    """Singles with each kind of key, and batches, of which two publishers share the work."""
    shared = calls("both", N // 4, "batch")
    work: list[list[list[Call]]] = [
        [[call] for call in calls("idempotency", N // 4)],
        [[call] for call in calls("unique", N // 4)],
        [[call] for call in calls("both", N // 4)],
        [shared[n : n + 5] for n in range(0, len(shared), 5)],
        [shared[n : n + 5][::-1] for n in range(len(shared) - 5, -1, -5)],
    ]
    publishers = [
        Publisher(app.url, tmp_path / f"log-{n}", batches) for n, batches in enumerate(work)
    ]
    kills = kill_until_done(publishers)
    lost = sum(
        int(line.split()[1]) for each in publishers[:3] for line in acknowledged(str(each.log))
    )
    context = f"N={N} publishes, {kills} kills, {lost} of them after a commit, before its receipt"
    assert kills >= sum(publisher.fewest_kills for publisher in publishers) >= N // 10, context
    census = check(app.url)
    assert len(census.jobs) == N, context
    assert_acknowledged(census, publishers, context)
    print(context)


def batches_in(url: str) -> Counter[str]:
    """How many jobs of each batch are in the store."""
    sqlite = url.startswith("sqlite")
    name = "json_extract(payload, '$.batch')" if sqlite else "payload ->> 'batch'"
    table = "oncely_job" if sqlite else "oncely.job"
    with connect(url) as connection:
        rows = connection.execute(f"select {name}, count(*) from {table} group by 1")
        return Counter(dict(rows.fetchall()))


def test_batches_cut_off_by_sigkill(app: Oncely, tmp_path: Path) -> None:
    """All of a batch is there, or nothing of it; and all of it if it was acknowledged."""
    chance = dice("killed in batches")
    log = tmp_path / "log"
    log.touch()
    kills = 0
    for number in range(ROUNDS):
        before = log.stat().st_size
        writers = [
            start(publish_batches, app.url, str(log), f"{number}-{writer}") for writer in range(3)
        ]
        wait_until(lambda before=before: log.stat().st_size > before, "a batch is acknowledged")  # type: ignore[misc]
        for writer in writers:
            time.sleep(chance.random() * 0.03)
            writer.kill()
        for writer in writers:
            writer.join()
            assert writer.exitcode == -9
            kills += 1
        app.get("00000000-0000-7000-8000-000000000000")
    check(app.url)
    found = batches_in(app.url)
    logged = log.read_text().split()
    context = f"{kills} kills, {len(found)} batches, {len(logged)} acknowledged"
    torn = {name: size for name, size in found.items() if size != BATCH}
    assert not torn, f"{context}, torn: {torn}"
    assert found.keys() >= set(logged), context
    print(context)
