"""A state that changes once, in the queue's database: the condition, the change, the trace of it
and the end of the job are one transaction."""

from pathlib import Path

from world import for_driver

from oncely import Context, Oncely, Receipt


def register(app: Oncely, _: Path) -> None:
    change = for_driver(
        app, "update trials set status = 'expired' where id = ? and status = 'active'"
    )
    trace = for_driver(app, "insert into history values (?, 'expired')")

    @app.job("trial.expire")
    async def expire(ctx: Context, trial_id: str) -> None:
        async with ctx.transaction() as tx:
            changed = await tx.execute(change, (trial_id,))
            if changed.rowcount:
                await tx.execute(trace, (trial_id,))
            await ctx.complete({"expired": bool(changed.rowcount)}, tx=tx)


def publish(app: Oncely) -> Receipt:
    return app.enqueue("trial.expire", "t1", unique_key="trial:t1")


TABLES = """
create table trials (id text, status text);
create table history (id text, what text);
insert into trials values ('t1', 'active');
"""
