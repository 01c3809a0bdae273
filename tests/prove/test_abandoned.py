"""What a killed proof has left, and a server that does not answer when it is put back."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from oncely.prove.abandoned import FOLDER, CopiedDatabase, make_folder, put_back
from oncely.prove.redis_keys import RedisKeys, RedisPlace, SavedKey, restore_from
from oncely.prove.saved_files import SavedFiles
from tests.cluster import Cluster, free_port

pytest_plugins = ["tests.engine.ledger_fixtures"]
EIGHT_DAYS = 8 * 86_400
KILLED = """
import os
from oncely.prove.abandoned import own_folder
with own_folder() as folder:
    (folder / "jobs.db").touch()
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as server:
        yield server


def abandoned_with_copy(place: Path, cluster: Cluster) -> Path:
    """The folder of a proof that was killed when it had copied a database."""
    cluster.create_database("oncely_prove_copy")
    folder, lock = make_folder(place)
    CopiedDatabase(cluster.url("postgres"), ["oncely_prove_copy"]).record(folder)
    os.close(lock)
    return folder


def has_copy(cluster: Cluster) -> bool:
    with psycopg.connect(cluster.url("postgres")) as server:
        names = server.execute("select datname from pg_database").fetchall()
    return ("oncely_prove_copy",) in names


def test_copies_are_dropped_when_their_server_is_back(
    place: Path, tmp_path: Path, cluster: Cluster
) -> None:
    file = tmp_path / "file"
    file.write_text("of the user")
    folder = abandoned_with_copy(place, cluster)
    SavedFiles(folder / "files", folder).save(str(file))
    file.write_text("of the handler")
    cluster.stop()
    put_back([place])
    assert file.read_text() == "of the user"
    file.write_text("of the user, later")
    cluster.start()
    assert has_copy(cluster)
    put_back([place])
    assert not has_copy(cluster)
    assert list(place.iterdir()) == []
    assert file.read_text() == "of the user, later"


def test_a_server_that_is_gone_is_not_asked_for_ever(place: Path, cluster: Cluster) -> None:
    folder = abandoned_with_copy(place, cluster)
    cluster.stop()
    put_back([place])
    assert folder.exists()
    then = folder.stat().st_mtime - EIGHT_DAYS
    os.utime(folder, (then, then))
    put_back([place])
    assert not folder.exists()


def test_keys_are_put_back_once_and_when_their_server_answers(
    tmp_path: Path, redis_url: str
) -> None:
    port = urlsplit(redis_url).port
    assert port is not None
    answers = RedisPlace("127.0.0.1", port, 6, None, None, None)
    away = RedisPlace("127.0.0.1", free_port(), 6, None, None, None)
    with redis.Redis(port=port, db=6) as cache:
        cache.flushdb()
        cache.set("key", "of the user")
        dump = cache.dump("key")
        assert isinstance(dump, bytes)
        for each in (answers, away):
            RedisKeys(tmp_path).save(SavedKey(each, b"key", dump, 0))
        cache.set("key", "of the handler")
        assert not restore_from(tmp_path)
        assert cache.get("key") == b"of the user"
        cache.set("key", "of the user, later")
        assert not restore_from(tmp_path)
        assert cache.get("key") == b"of the user, later"
    keys = RedisKeys(tmp_path)
    assert [keys.is_saved(each, b"key") for each in (answers, away)] == [False, True]


def test_the_store_of_a_plain_function_goes(place: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED], env={**os.environ, "TMPDIR": str(place)}, check=False
    )
    assert killed.returncode == -9
    assert len(list(place.glob(f"{FOLDER}*"))) == 1
    put_back([place])
    assert list(place.iterdir()) == []
