"""The standby that the tests start: what it receives, what waits for it, and its promotion."""

from concurrent.futures import ThreadPoolExecutor

import psycopg

from tests.standby import Replication
from tests.waiting import wait_until


def insert(url: str, number: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO kept VALUES (%s)", [number])


def numbers(url: str) -> list[int]:
    with psycopg.connect(url) as connection:
        return [n for (n,) in connection.execute("SELECT n FROM kept ORDER BY n").fetchall()]


def test_a_commit_waits_for_the_standby_until_it_goes_on_and_is_there_after_a_promotion() -> None:
    with Replication() as replication, ThreadPoolExecutor(1) as publisher:
        url = replication.primary.create_database("kept")
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE kept (n integer)")
        replication.synchronize()
        insert(replication.url("kept"), 1)
        replication.hold_up()
        held = publisher.submit(insert, url, 2)
        wait_until(replication.waiting_commits, "no COMMIT waits for the standby")
        assert not held.done()
        assert numbers(url) == [1]
        replication.let_go_on()
        held.result()
        replication.hold_up()
        replication.desynchronize()
        insert(url, 3)  # the standby has not received it when it is promoted
        replication.primary.freeze()
        replication.promote()
        insert(replication.standby.url("kept"), 4)
        assert numbers(replication.standby.url("kept")) in ([1, 2, 4], [1, 2, 3, 4])
        replication.primary.stop("immediate")
        insert(replication.url("kept"), 5)
        assert 5 in numbers(replication.standby.url("kept"))
