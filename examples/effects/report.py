"""A report: gathered, uploaded, then written down. No lock: the queue's lease is one, and it is
fenced. The upload may be repeated; the row commits with the end of the job."""

from pathlib import Path

from world import Storage, for_driver

from oncely import Context, Oncely, Receipt, key


def register(app: Oncely, folder: Path) -> None:
    storage = Storage(folder, "storage")
    insert = for_driver(app, "insert into reports values (?, ?)")

    @app.job("report.make")
    def make(ctx: Context, report_id: str) -> None:
        name = f"{report_id}-{ctx.job_id}.pdf"
        url = ctx.step("upload", storage.put, name, f"report {report_id}")
        with ctx.transaction() as tx:
            tx.execute(insert, (report_id, url))


def publish(app: Oncely) -> Receipt:
    return app.enqueue("report.make", "2026-10", idempotency_key=key("report", "2026-10"))


TABLES = "create table reports (id text, url text)"
