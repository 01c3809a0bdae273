"""A handler in both forms, `async def` and `def`, and a world that it does things to."""

import inspect
from collections.abc import Callable
from typing import Any

from oncely import Context, Job, Oncely, Retry
from tests.engine.steps import found

AT_ONCE = Retry(base=0, max_attempts=5)


class World:
    """What was done, in order."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def do(self, *args: Any) -> Any:
        self.done.append(args)
        return {"n": len(self.done)}

    async def ado(self, *args: Any) -> Any:
        return self.do(*args)


class Stage:
    """A handler in both forms: its body is a generator that yields what an async one awaits."""

    def __init__(self, app: Oncely, form: str) -> None:
        self.app = app
        self.form = form
        self.seen: list[Any] = []

    def handler(self, body: Callable[[Context], Any], **options: Any) -> None:
        options.setdefault("retry", AT_ONCE)

        async def on_loop(ctx: Context) -> Any:
            steps, value = body(ctx), None
            try:
                while True:
                    wanted = steps.send(value)
                    try:
                        value = await wanted if inspect.isawaitable(wanted) else wanted
                    except Exception as error:
                        wanted = steps.throw(error)
                        value = await wanted if inspect.isawaitable(wanted) else wanted
            except StopIteration as end:
                return end.value

        def in_thread(ctx: Context) -> Any:
            steps, value = body(ctx), None
            try:
                while True:
                    value = steps.send(value)
            except StopIteration as end:
                return end.value

        self.app.job("k", **options)(on_loop if self.form == "async" else in_thread)

    def run(self, payload: Any = None) -> Job:
        receipt = self.app.enqueue("k", payload)
        self.app.drain()
        return found(self.app, receipt.job_id)
