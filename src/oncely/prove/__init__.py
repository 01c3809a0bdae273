"""The prover: what a crash would do to a handler, shown by crashing it."""

from oncely.prove.downstream import Downstream, Reply
from oncely.prove.explore import prove
from oncely.prove.mailbox import Mailbox
from oncely.prove.report import Report, Violation
from oncely.prove.world import Table

__all__ = ["Downstream", "Mailbox", "Reply", "Report", "Table", "Violation", "prove"]
