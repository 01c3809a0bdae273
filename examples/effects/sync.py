"""A sync from elsewhere into the queue's database: fetched once, as a step; the rows, the count and
the end of the job are one transaction."""

from pathlib import Path

from world import for_driver

from oncely import Context, Oncely, Receipt, key

ELSEWHERE = {"acme": ["ann", "bob"]}


def register(app: Oncely, _: Path) -> None:
    insert = for_driver(app, "insert into members values (?, ?)")

    @app.job("tenant.sync")
    def sync(ctx: Context, tenant: str) -> None:
        members = ctx.step("fetch", ELSEWHERE.get, tenant)
        with ctx.transaction() as tx:
            for name in members:
                tx.execute(insert, (tenant, name))
            ctx.complete({"synced": len(members)}, tx=tx)


def publish(app: Oncely) -> Receipt:
    return app.enqueue("tenant.sync", "acme", idempotency_key=key("sync", "acme", "2026-10-05"))


TABLES = "create table members (tenant text, name text)"
