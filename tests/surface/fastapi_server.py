"""A till in FastAPI behind the middleware: `python -m tests.surface.fastapi_server`."""

import os
import time
from pathlib import Path
from typing import Annotated, Any

from fastapi import BackgroundTasks, Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel

from oncely.asgi import IdempotencyMiddleware
from tests.surface.asgi_server import main


class Order(BaseModel):
    order: str
    cents: int = 100


def make_app(url: str, charges: Path, options: dict[str, Any]) -> FastAPI:
    app = FastAPI()
    app.add_middleware(IdempotencyMiddleware, store=url, **options)

    def write(line: str) -> None:
        with charges.open("a") as file:
            file.write(f"{line}\n")

    def gate(request: Request) -> Path | None:
        named = request.query_params.get("gate")
        return Path(named) if named else None

    @app.post("/charge", status_code=201)
    def charge(
        order: Order, gate: Annotated[Path | None, Depends(gate)], after: BackgroundTasks
    ) -> dict[str, Any]:
        """A plain function: FastAPI runs it in a thread."""
        if order.cents < 0:
            raise HTTPException(402, "no money")
        write(order.order)
        while gate is not None and not gate.exists():
            time.sleep(0.01)
        after.add_task(write, f"after {order.order}")
        return {"by": os.getpid(), "order": order.order}

    return app


if __name__ == "__main__":
    main(make_app)
