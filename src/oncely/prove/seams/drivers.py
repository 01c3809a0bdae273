"""Libraries that reach a database or a service past everything that is watched here: a proof of a
handler that uses one is refused, for what it did would be done for real, many times, and unseen."""

from __future__ import annotations

import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from oncely.prove.watch import Watch

if TYPE_CHECKING:
    from oncely.prove.copies import Copies

DRIVERS: Final[dict[str, tuple[str, ...]]] = {
    "MySQLdb": ("connect", "Connect", "Connection"),
    "pymysql": ("connect", "Connect", "Connection"),
    "aiomysql": ("connect", "create_pool"),
    "asyncmy": ("connect", "create_pool"),
    "mysql.connector": ("connect", "Connect", "MySQLConnection", "CMySQLConnection"),
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
    "duckdb": ("connect",),
    "grpc": ("insecure_channel", "secure_channel"),
    "grpc.aio": ("insecure_channel", "secure_channel"),
    "confluent_kafka": ("Producer", "Consumer"),
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
        module: Any = sys.modules.get(library)
        for name in names:
            entry = getattr(module, name, None)
            if entry is not None:
                refusal = _refusing(watch, library)
                copies.everywhere.replace(entry, refusal)
                setattr(module, name, refusal)


def entries() -> list[Any]:
    """What of these libraries is there, so that it is found where it was imported by name."""
    return [
        entry
        for library, names in DRIVERS.items()
        for name in names
        if (entry := getattr(sys.modules.get(library), name, None)) is not None
    ]


def driver_in(frame: FrameType | None) -> str | None:
    """Why a connection is refused that one of these libraries opens."""
    while frame is not None:
        root = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if root in _ROOTS:
            return _why(root)
        frame = frame.f_back
    return None


def _refusing(watch: Watch, library: str) -> Any:
    def refuse(*args: Any, **options: Any) -> Any:
        del args, options
        watch.refuse(_why(library))

    return refuse


def _why(library: str) -> str:
    return (
        f"the handler connects through {library}, which is not watched: what it does would be done "
        "for real, many times, and could not be compared. Let the function that uses it be "
        "replaced by a stand-in for the proof"
    )
