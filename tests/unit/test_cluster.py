import os

import psycopg
import pytest

from tests.cluster import Cluster, ClusterError


def show(url: str, setting: str) -> str:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT current_setting(%s)", [setting]).fetchone()
    assert row is not None
    return str(row[0])


def test_answers(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_syncs_its_files(postgres_url: str) -> None:
    assert show(postgres_url, "fsync") == "on"


def test_the_wheel_is_postgresql_18(cluster: Cluster, postgres_url: str) -> None:
    if cluster.from_wheel:
        assert show(postgres_url, "server_version").startswith("18.")


def test_keeps_what_was_committed_through_a_crash() -> None:
    with Cluster(own=True) as cluster:
        url = cluster.create_database("kept")
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE kept (n integer)")
            connection.execute("INSERT INTO kept VALUES (7)")
        first = cluster.pid
        cluster.restart("immediate")
        assert cluster.pid != first
        assert cluster.url("kept") == url
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT n FROM kept").fetchone() == (7,)


def test_close_leaves_nothing() -> None:
    with Cluster(own=True) as cluster:
        pid = cluster.pid
    cluster.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ClusterError, match="not been started"):
        cluster.url()


def test_url_of_a_given_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_DATABASE_URL", "postgresql://me:pw@db:1234/base?sslmode=disable")
    cluster = Cluster()
    assert cluster.url() == "postgresql://me:pw@db:1234/base?sslmode=disable"
    assert cluster.url("other") == "postgresql://me:pw@db:1234/other?sslmode=disable"
    with pytest.raises(ClusterError, match="not ours"):
        cluster.stop()
