"""Libraries that reach a database or a service past everything that is watched here: a proof of a
handler that uses one is refused, for what it did would be done for real, many times, and unseen."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from oncely.prove.watch import Watch

if TYPE_CHECKING:
    from oncely.prove.copies import Copies

DRIVERS: Final[dict[str, tuple[str, ...]]] = {
    "MySQLdb": ("connect", "Connect", "Connection"),
    "aiomysql": ("connect", "create_pool"),
    "asyncmy": ("connect", "create_pool"),
    "mysql.connector": ("connect", "Connect", "MySQLConnection", "CMySQLConnection"),
    "mysql.connector.aio": ("connect",),
    "pyodbc": ("connect",),
    "aioodbc": ("connect", "create_pool"),
    "pymssql": ("connect",),
    "oracledb": ("connect", "connect_async", "create_pool", "create_pool_async"),
    "cx_Oracle": ("connect", "SessionPool"),
    "pg8000": ("connect",),
    "pg8000.native": ("Connection",),
    "pg8000.dbapi": ("connect",),
    "pymongo": ("MongoClient", "AsyncMongoClient"),
    "motor.motor_asyncio": ("AsyncIOMotorClient",),
    "cassandra.cluster": ("Cluster",),
    "duckdb": (
        *("connect", "default_connection", "cursor", "execute", "executemany", "sql", "query"),
        *("from_query", "read_csv", "read_json", "read_parquet", "from_csv_auto", "from_parquet"),
        *("from_df", "from_arrow", "table", "view", "values", "install_extension"),
    ),
    "grpc": ("insecure_channel", "secure_channel"),
    "grpc.aio": ("insecure_channel", "secure_channel"),
    "confluent_kafka": ("Producer", "Consumer"),
    "confluent_kafka.admin": ("AdminClient",),
    "pycurl": ("Curl", "CurlMulti"),
    "lmdb": ("open", "Environment"),
    "apsw": ("Connection",),
    "plyvel": ("DB",),
    "rocksdict": ("Rdict",),
    "zmq": ("Context", "Socket"),
    "valkey": ("Valkey", "Redis", "StrictRedis", "ValkeyCluster"),
    "pymemcache": ("Client",),
    "dbm.gnu": ("open",),
    "dbm.ndbm": ("open",),
}
"""Of each library the names by which it is entered."""
_ROOTS: Final = {name.partition(".")[0] for name in DRIVERS} - {"dbm"}


def install(watch: Watch, copies: Copies) -> None:
    for library, names in DRIVERS.items():
        module = module_of(library)
        for name in names:
            entry = getattr(module, name, None)
            if entry is not None:
                refusal = _Refusal(watch, library)
                copies.everywhere.replace(entry, refusal)
                setattr(module, name, refusal)
                if isinstance(entry, type):
                    replace_new(entry, refusal)


def module_of(library: str) -> Any:
    """None if it is not there. Another one may have its name: PyMySQL can stand for MySQLdb."""
    module = sys.modules.get(library)
    return module if getattr(module, "__name__", "") == library else None


def entries() -> list[Any]:
    """What of these libraries is there, so that it is found where it was imported by name."""
    return [
        entry
        for library, names in DRIVERS.items()
        for name in names
        if (entry := getattr(module_of(library), name, None)) is not None
    ]


def driver_in(frame: FrameType | None) -> str | None:
    """Why a connection is refused that one of these libraries opens."""
    while frame is not None:
        root = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if root in _ROOTS:
            return _why(root)
        frame = frame.f_back
    return None


class _Refusal:
    """Stands for an entry: a function, or a class, which may have functions that make one."""

    def __init__(self, watch: Watch, library: str) -> None:
        self._watch = watch
        self._library = library

    def __call__(self, *_: Any, **options: Any) -> Any:
        del options
        self._watch.refuse(_why(self._library))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._watch.refuse(_why(self._library))


def replace_new(kind: type, new: Any, besides: type | None = None) -> None:
    """Of the classes that are derived from it: these were there before its name was replaced."""
    derived: list[Any] = type.__subclasses__(kind)
    for each in derived:
        if each is not besides:
            with suppress(TypeError):  # it is written in C
                each.__new__ = new
            replace_new(each, new, besides)


def _why(library: str) -> str:
    return (
        f"the handler connects through {library}, which is not watched: what it does would be done "
        "for real, many times, and could not be compared. Let the function that uses it be "
        "replaced by a stand-in for the proof"
    )
