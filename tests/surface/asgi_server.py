"""A real server with a till behind the middleware: `python -m tests.surface.asgi_server`.

A charge is a line in a file. With `?gate=PATH` it then waits until that file is there.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from oncely.asgi import IdempotencyMiddleware

ROOT = Path(__file__).parents[2]


def make_app(url: str, charges: Path, options: dict[str, Any]) -> Starlette:
    async def charge(request: Request) -> JSONResponse:
        body = await request.json()
        with charges.open("a") as file:
            file.write(f"{body['order']}\n")
        gate = request.query_params.get("gate")
        while gate is not None and not os.path.exists(gate):  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.01)
        return JSONResponse({"by": os.getpid(), "order": body["order"]}, 201)

    async def stream(request: Request) -> StreamingResponse:
        gate = request.query_params["gate"]

        async def pieces() -> Any:
            yield b"first "
            while not os.path.exists(gate):  # noqa: ASYNC110, ASYNC240
                await asyncio.sleep(0.01)
            yield b"last"

        with charges.open("a") as file:
            file.write("stream\n")
        return StreamingResponse(pieces())

    app = Starlette(
        routes=[
            Route("/charge", charge, methods=["POST"]),
            Route("/stream", stream, methods=["POST"]),
        ]
    )
    app.add_middleware(IdempotencyMiddleware, store=url, **options)
    return app


@dataclass
class Server:
    url: str
    process: "subprocess.Popen[str]"

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait()


@contextmanager
def serve(
    url: str, charges: Path, *, module: str = "tests.surface.asgi_server", **options: Any
) -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-m", module, url, charges, json.dumps(options)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        yield Server(f"http://127.0.0.1:{port}", process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def main(make_app: Callable[[str, Path, dict[str, Any]], Any] = make_app) -> None:
    url, charges, options = sys.argv[1:]
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    print(listening.getsockname()[1], flush=True)
    app = make_app(url, Path(charges), json.loads(options))
    config = uvicorn.Config(app, log_level="warning", lifespan="on")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
