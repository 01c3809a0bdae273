"""What is acknowledged is there, and what is repeated is one: also when servers die and answers
are lost."""

import signal
import threading
import time

import httpx2

from oncely import Oncely
from tests.cluster import free_port
from tests.crash.load import TORTURE
from tests.surface.http.cutter import Cutter
from tests.surface.http.server import Client, as_process, in_thread
from tests.waiting import wait_until

KILLS = 2 if TORTURE == 1 else 50
CUTS = 10 if TORTURE == 1 else 1_000
PUBLISHERS = 8


class Load:
    """Publishers that repeat, with the same key, until they are answered."""

    def __init__(self, url: str) -> None:
        self.acknowledged: dict[str, str] = {}
        self.repeated = 0
        self._url = url
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._given_up = threading.Event()
        self._threads = [
            threading.Thread(target=self._publish, args=(n,)) for n in range(PUBLISHERS)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Each gets its last answer first."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def give_up(self) -> None:
        self._given_up.set()
        self.end()

    def _publish(self, publisher: int) -> None:
        n = 0
        with Client(self._url) as client:
            while not self._over.is_set():
                self._insist(client, f"order:{publisher}-{n}:charge")
                n += 1

    def _insist(self, client: Client, key: str) -> None:
        while not self._given_up.is_set():
            try:
                answer = client.publish("q", key, idempotencyKey=key)
            except httpx2.TransportError:
                time.sleep(0.01)
                continue
            assert answer.status_code in (200, 201), answer.text
            with self._lock:
                self.acknowledged[key] = answer.json()["id"]
                self.repeated += answer.status_code == 200
            return


def test_every_acknowledged_job_is_there_after_the_server_was_killed(url: str, app: Oncely) -> None:
    port = free_port()
    load = Load(f"http://127.0.0.1:{port}")
    try:
        for _ in range(KILLS):
            with as_process(url, "--no-access-log", port=port) as server:
                wanted = len(load.acknowledged) + 50
                wait_until(lambda wanted=wanted: len(load.acknowledged) >= wanted)  # type: ignore[misc]
                server.end(signal.SIGKILL)
        with as_process(url, "--no-access-log", port=port):
            load.end()
    finally:
        load.give_up()
    stored = {job.job_id: job.payload for job in app.jobs(limit=10_000)}
    assert {id: key for key, id in load.acknowledged.items()} == stored
    print(f"{KILLS} kills, {len(stored)} jobs, {load.repeated} repeats recognised")


def test_a_client_that_is_cut_off_after_the_commit_makes_one_job(app: Oncely) -> None:
    with in_thread(app) as url, Cutter(url) as cutter:
        with Client(cutter.url) as cut, Client(url) as whole:
            for n in range(CUTS):
                try:
                    answer = cut.publish("q", n, idempotencyKey=f"k:{n}")
                except httpx2.TransportError:
                    answer = whole.publish("q", n, idempotencyKey=f"k:{n}")
                assert (answer.status_code, answer.json()["deduplicated"]) == (200, True)
        assert cutter.cuts == CUTS
    assert sorted(job.payload for job in app.jobs(limit=10_000)) == list(range(CUTS))
