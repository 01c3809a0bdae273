"""Oncely: a job queue whose effects happen once, however often its jobs run."""

from oncely.flow.block import LedgerEntry
from oncely.flow.context import Context
from oncely.model.counter import Counter
from oncely.model.errors import (
    EffectMismatch,
    EffectNotFound,
    InDoubt,
    InProgress,
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
from oncely.model.health import KeyHealth
from oncely.model.job import Effect, Execution, Job, NewJob, Receipt, Receipts, Resolution
from oncely.model.outcome import Cancel, Defer, Nack
from oncely.model.retention import Retention
from oncely.model.retry import Retry
from oncely.model.schedule import Schedule
from oncely.model.story import Story
from oncely.store.ledger.plans import Doubt
from oncely.surface.app import Oncely
from oncely.surface.key import key
from oncely.surface.ledger import Ledger

__all__ = [
    "Cancel",
    "Context",
    "Counter",
    "Defer",
    "Doubt",
    "Effect",
    "EffectMismatch",
    "EffectNotFound",
    "Event",
    "Execution",
    "Group",
    "InDoubt",
    "InProgress",
    "InvalidInput",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "KeyConflict",
    "KeyHealth",
    "KeyWarning",
    "LeaseLost",
    "Ledger",
    "LedgerEntry",
    "Nack",
    "NewJob",
    "NoResult",
    "Oncely",
    "OncelyError",
    "Queue",
    "RaceError",
    "Receipt",
    "Receipts",
    "Resolution",
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
