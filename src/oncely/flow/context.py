"""`Context`: what a handler knows of the execution it is."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future
from typing import Any

from oncely.store.deliver import Claimed


class Context:
    """The first argument of every handler.

    `job_id` is the same in every delivery and replay, `execution_id` new in each. `deadline` is
    the moment on the loop's clock (`time.monotonic`) at which the execution times out, or None.
    """

    def __init__(
        self, claimed: Claimed, payload: Any, *, max_attempts: int, deadline: float | None
    ) -> None:
        self.job_id = claimed.job_id
        self.execution_id = claimed.execution_id
        self.attempt = claimed.attempt
        self.max_attempts = max_attempts
        self.epoch = claimed.fence.epoch
        self.kind = claimed.kind
        self.queue = claimed.queue
        self.payload = payload
        self.deadline = deadline
        self.begun = time.monotonic()
        self.lost = False
        self.thread: Future[Any] | None = None

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that names the job."""
        return logging.LoggerAdapter(
            logging.getLogger("oncely.job"),
            {"job_id": self.job_id, "execution_id": self.execution_id, "kind": self.kind},
        )
