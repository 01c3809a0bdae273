"""FastAPI on uvicorn with asyncpg: a durable insert and a commit of its own for every request."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager

import asyncpg
import uvicorn
from driving import Driver, WrongCountError, main
from fastapi import FastAPI
from http_load import load
from pydantic import BaseModel
from serving import free_port, serving

TABLE = """
create table job (
    id bigint generated always as identity primary key, queue text not null, kind text not null,
    payload json not null, created_at timestamptz not null default now()
);
create index on job (queue, id)
"""


class NewJob(BaseModel):
    kind: str
    payload: int


class FastApiDriver(Driver):
    measures = ("publish",)

    def publish(self, jobs: int) -> dict[str, float]:
        asyncio.run(self._execute(TABLE))
        port = free_port()
        bodies = [json.dumps({"kind": "noop", "payload": n}).encode() for n in range(jobs)]
        command = [sys.executable, sys.argv[0], "work", "--url", self.url, "--mode", str(port)]
        with serving(command, port, dict(os.environ)):
            seconds = load(f"http://127.0.0.1:{port}/v1/queues/bench/jobs", bodies)
        stored = asyncio.run(self._execute("select count(*) from job"))
        if stored != jobs:
            raise WrongCountError(f"{stored} of {jobs} jobs are in the store")
        return {"rate": jobs / seconds}

    async def _execute(self, sql: str) -> int | None:
        connection = await asyncpg.connect(self.url)
        try:
            if sql.startswith("select"):
                return await connection.fetchval(sql)
            await connection.execute(sql)
            return None
        finally:
            await connection.close()

    def work(self, *, processes: int, mode: str) -> None:
        """The server; the mode is its port."""
        pools: list[asyncpg.Pool] = []

        @asynccontextmanager
        async def life(_: FastAPI):
            pools.append(await asyncpg.create_pool(self.url, min_size=10, max_size=20))
            yield

        app = FastAPI(lifespan=life)

        @app.post("/v1/queues/{queue}/jobs", status_code=201)
        async def take(queue: str, job: NewJob):
            made = await pools[0].fetchval(
                "insert into job (queue, kind, payload) values ($1, $2, $3) returning id",
                queue,
                job.kind,
                json.dumps(job.payload),
            )
            return {"id": made, "kind": job.kind, "queue": queue}

        uvicorn.run(app, port=int(mode), log_level="critical", access_log=False)


main(FastApiDriver)
