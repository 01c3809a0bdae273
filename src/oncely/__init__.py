"""Oncely: a job queue whose effects happen once, however often its jobs run."""

from oncely.flow.context import Context
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
from oncely.model.outcome import Cancel, Defer, Nack
from oncely.model.retention import Retention
from oncely.model.retry import Retry
from oncely.surface.app import Oncely
from oncely.surface.key import key

__all__ = [
    "Cancel",
    "Context",
    "Defer",
    "Execution",
    "InvalidInput",
    "Job",
    "JobNotFound",
    "KeyConflict",
    "KeyWarning",
    "LeaseLost",
    "Nack",
    "NewJob",
    "Oncely",
    "OncelyError",
    "RaceError",
    "Receipt",
    "Receipts",
    "Retention",
    "Retry",
    "SchemaError",
    "StoreError",
    "StoreUnavailable",
    "UniqueKeyTaken",
    "UsageError",
    "WrongState",
    "key",
]
