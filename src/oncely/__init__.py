"""Oncely: a job queue whose effects happen once, however often its jobs run."""

from oncely.flow.context import Context
from oncely.model.errors import (
    EffectMismatch,
    EffectNotFound,
    InDoubt,
    InvalidInput,
    JobCancelled,
    JobFailed,
    JobNotFound,
    KeyConflict,
    KeyWarning,
    LeaseLost,
    NoResult,
    OncelyError,
    RaceError,
    ResultTimeout,
    ScheduleDeclared,
    ScheduleNotFound,
    SchemaError,
    StoreError,
    StoreUnavailable,
    UniqueKeyTaken,
    UsageError,
    WrongState,
)
from oncely.model.event import Event
from oncely.model.flow import Group, Queue
from oncely.model.job import Execution, Job, NewJob, Receipt, Receipts
from oncely.model.outcome import Cancel, Defer, Nack
from oncely.model.retention import Retention
from oncely.model.retry import Retry
from oncely.model.schedule import Schedule
from oncely.model.story import Story
from oncely.surface.app import Oncely
from oncely.surface.key import key

__all__ = [
    "Cancel",
    "Context",
    "Defer",
    "EffectMismatch",
    "EffectNotFound",
    "Event",
    "Execution",
    "Group",
    "InDoubt",
    "InvalidInput",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "KeyConflict",
    "KeyWarning",
    "LeaseLost",
    "Nack",
    "NewJob",
    "NoResult",
    "Oncely",
    "OncelyError",
    "Queue",
    "RaceError",
    "Receipt",
    "Receipts",
    "ResultTimeout",
    "Retention",
    "Retry",
    "Schedule",
    "ScheduleDeclared",
    "ScheduleNotFound",
    "SchemaError",
    "StoreError",
    "StoreUnavailable",
    "Story",
    "UniqueKeyTaken",
    "UsageError",
    "WrongState",
    "key",
]
