"""A notification. The provider takes no key and cannot be asked: a fence, and in doubt a person."""

from pathlib import Path

from world import Service

from oncely import Context, Oncely, Receipt, key


def register(app: Oncely, folder: Path) -> None:
    pager = Service(folder, "pager")

    @app.job("alarm.page")
    async def page(ctx: Context, who: str) -> None:
        await ctx.fence("page", pager.do, who)


def publish(app: Oncely) -> Receipt:
    return app.enqueue("alarm.page", "ann", idempotency_key=key("alarm", 17))
