"""Job ids: never twice, whoever makes them, and in order within a process."""

import json
import os
import threading
import time
from uuid import RFC_4122, UUID

import pytest

from oncely.flow.identity import new_job_ids


def test_an_id_is_a_uuid_of_version_7() -> None:
    for text in [*new_job_ids(100), *(new_job_ids(1)[0] for _ in range(50))]:
        id = UUID(text)
        assert (id.version, id.variant) == (7, RFC_4122)
        assert str(id) == text


def test_the_bits_beside_the_variant_are_random_too() -> None:
    """Of 2,000 ids none of the 64 forms is missing, but by a chance of one in 10^12."""
    for ids in ([new_job_ids(1)[0] for _ in range(2_000)], new_job_ids(2_000)):
        assert len({id[19:21] for id in ids}) == 64


def test_the_time_in_an_id_is_now() -> None:
    before = time.time_ns() // 1_000_000
    [text] = new_job_ids(1)
    after = time.time_ns() // 1_000_000
    # Ids made in advance of the clock, by a large batch before, are at most a little ahead.
    assert before <= UUID(text).int >> 80 <= after + 1_000


def test_a_clock_that_was_far_ahead_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    right = time.time_ns
    with monkeypatch.context() as wrong:
        wrong.setattr(time, "time_ns", lambda: right() + 40 * 86_400 * 10**9)
        [ahead] = new_job_ids(1)
    [now] = new_job_ids(1)
    assert UUID(now).int >> 80 <= time.time_ns() // 1_000_000 + 1_000 < UUID(ahead).int >> 80


def test_ids_rise_within_and_across_calls() -> None:
    ids = [id for count in (1, 1000, 1, 5000, 3) for id in new_job_ids(count)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_none_are_made_for_none() -> None:
    assert new_job_ids(0) == []


def test_ids_rise_even_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    [first] = new_job_ids(1)
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() - 1_800 * 10**9)
    [second] = new_job_ids(1)
    assert second > first


def test_threads_never_make_the_same_id() -> None:
    made: list[list[str]] = []

    def make() -> None:
        made.append([id for _ in range(200) for id in new_job_ids(5)])

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [id for ids in made for id in ids]
    assert len(set(everything)) == len(everything) == 8000
    assert all(ids == sorted(ids) for ids in made)


def test_forked_children_never_make_the_same_id() -> None:
    new_job_ids(10)
    pipes = []
    for _ in range(4):
        reader, writer = os.pipe()
        if os.fork() == 0:
            with os.fdopen(writer, "w") as out:
                json.dump(new_job_ids(2000), out)
            os._exit(0)
        os.close(writer)
        pipes.append(reader)
    everything = new_job_ids(2000)
    for reader in pipes:
        with os.fdopen(reader) as answer:
            everything += json.load(answer)
    for _ in pipes:
        assert os.wait()[1] == 0
    assert len(set(everything)) == len(everything) == 10_000


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_makes_ids_does_not_hang() -> None:
    done = threading.Event()

    def make() -> None:
        while not done.is_set():
            new_job_ids(50)

    thread = threading.Thread(target=make)
    thread.start()
    try:
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                os._exit(0 if len(new_job_ids(2)) == 2 else 1)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        done.set()
        thread.join()
