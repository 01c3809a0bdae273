"""Oncely: a job queue whose effects happen once, however often its jobs run."""

from oncely.model.errors import (
    InvalidInput,
    JobNotFound,
    KeyConflict,
    KeyWarning,
    LeaseLost,
    OncelyError,
    RaceError,
    SchemaError,
    StoreError,
    StoreUnavailable,
    UniqueKeyTaken,
    UsageError,
    WrongState,
)
from oncely.model.job import Execution, Job, NewJob, Receipt, Receipts
from oncely.surface.app import Oncely
from oncely.surface.key import key

__all__ = [
    "Execution",
    "InvalidInput",
    "Job",
    "JobNotFound",
    "KeyConflict",
    "KeyWarning",
    "LeaseLost",
    "NewJob",
    "Oncely",
    "OncelyError",
    "RaceError",
    "Receipt",
    "Receipts",
    "SchemaError",
    "StoreError",
    "StoreUnavailable",
    "UniqueKeyTaken",
    "UsageError",
    "WrongState",
    "key",
]
