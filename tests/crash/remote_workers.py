"""Worker processes that reach their store through a server, to be killed and stopped."""

import logging
import time
from pathlib import Path
from typing import Any

from oncely import Context, Oncely


def work(url: str, folder: Path, lease_seconds: float) -> None:
    logging.disable(logging.CRITICAL)
    with Oncely(url) as app:

        def note(name: str, payload: Any) -> str:
            with (folder / name).open("a") as file:
                file.write(f"{payload}\n")
            return f"{name} {payload}"

        @app.job("step")
        async def step(ctx: Context, payload: Any) -> Any:
            return await ctx.step("note", note, "steps", payload)

        @app.job("stuck")
        def stuck(ctx: Context, payload: Any) -> Any:
            """In the first delivery it hangs, after its effect."""
            told = ctx.step("note", note, "begun", payload)
            if not (folder / "in the middle").exists():
                (folder / "in the middle").touch()
                while not (folder / "go on").exists():
                    time.sleep(0.02)
                try:
                    ctx.step("late", note, "late", payload)
                except Exception as error:
                    note("refused", type(error).__name__)
                    raise
                finally:
                    (folder / "over").touch()
            return told

        app.worker(lease_seconds=lease_seconds, poll_seconds=0.2, grace_seconds=0.2).run()
