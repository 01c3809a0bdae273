"""Whoever looks after the jobs that are held: what nobody knows, a person must find out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from oncely.model.errors import EffectNotFound
from oncely.model.job import Job
from oncely.surface.app import Oncely
from oncely.surface.cli.demo.book import read
from oncely.surface.cli.demo.record import Record, Watcher

NAME = "demo"
NOTE = "looked in the mailbox"


class Senders(Protocol):
    """Who may still be at it."""

    def is_sending(self, order: int) -> bool: ...


class Operator:
    def __init__(
        self, app: Oncely, book: Path, working: Senders, record: Record, watcher: Watcher
    ) -> None:
        self._app = app
        self._book = book
        self._working = working
        self._record = record
        self._watcher = watcher

    async def attend(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            # Who is about to send will tell its end by itself; an answer now would be a guess.
            if job.state == "in_doubt" and not self._working.is_sending(job.payload["order_id"]):
                await self._resolve(job)

    async def _resolve(self, job: Job) -> None:
        order = job.payload["order_id"]
        mail = (await asyncio.to_thread(read, self._book)).mail_of(order)
        with suppress(EffectNotFound):  # a worker that was late has told its end meanwhile
            await self._app.aresolve(
                job.job_id, "receipt", happened=mail is not None, result=mail, note=NOTE, by=NAME
            )
            self._record.resolved.append(job.job_id)
            found = "not sent, so it will be" if mail is None else "sent, so it is not sent again"
            self._watcher.told(f"order {order} was held, and its receipt found {found}")
