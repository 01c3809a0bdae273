"""Oncely: a job queue whose effects happen once, however often its jobs run."""

from oncely.flow.block import LedgerEntry
from oncely.flow.context import Context
from oncely.model.audit import AuditEntry
from oncely.model.counter import Counter
from oncely.model.effect_options import Fence, Step
from oncely.model.errors import (
    AccessRefused,
    BlockingCall,
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
    NotOverHttp,
    OncelyError,
    PushRefused,
    RaceError,
    RequestNotFound,
    ResultTimeout,
    ScheduleDeclared,
    ScheduleNotFound,
    SchemaError,
    StoreError,
    StoreUnavailable,
    TokenNotFound,
    UniqueKeyTaken,
    UsageError,
    UserNotFound,
    WorkerStuck,
    WrongState,
)
from oncely.model.event import Event
from oncely.model.flow import Group, Queue
from oncely.model.health import KeyHealth
from oncely.model.http_errors import http_refused
from oncely.model.job import Effect, Execution, Job, NewJob, Receipt, Receipts, Resolution
from oncely.model.outcome import Cancel, Defer, Nack, NotDone
from oncely.model.push import Push, PushTarget
from oncely.model.request import RequestInDoubt
from oncely.model.retention import Retention
from oncely.model.retry import Retry
from oncely.model.schedule import Schedule
from oncely.model.story import Story
from oncely.model.token import NewToken, Token
from oncely.model.traffic import Latency, Traffic
from oncely.model.user import User
from oncely.model.worker import Worker
from oncely.store.ledger.plans import Doubt
from oncely.surface.acting import acting
from oncely.surface.app import Oncely
from oncely.surface.key import key
from oncely.surface.ledger import Ledger

__all__ = [
    "AccessRefused",
    "AuditEntry",
    "BlockingCall",
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
    "Fence",
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
    "Latency",
    "LeaseLost",
    "Ledger",
    "LedgerEntry",
    "Nack",
    "NewJob",
    "NewToken",
    "NoResult",
    "NotDone",
    "NotOverHttp",
    "Oncely",
    "OncelyError",
    "Push",
    "PushRefused",
    "PushTarget",
    "Queue",
    "RaceError",
    "Receipt",
    "Receipts",
    "RequestInDoubt",
    "RequestNotFound",
    "Resolution",
    "ResultTimeout",
    "Retention",
    "Retry",
    "Schedule",
    "ScheduleDeclared",
    "ScheduleNotFound",
    "SchemaError",
    "Step",
    "StoreError",
    "StoreUnavailable",
    "Story",
    "Token",
    "TokenNotFound",
    "Traffic",
    "UniqueKeyTaken",
    "UsageError",
    "User",
    "UserNotFound",
    "Worker",
    "WorkerStuck",
    "WrongState",
    "acting",
    "http_refused",
    "key",
]
