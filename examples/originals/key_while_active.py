"""Events of a webhook: the event's id is a key for as long as the job is in the pipeline."""

from places import Places, opened

from oncely import Context, Oncely

TABLES = "create table payments (account text)"


def receive(app: Oncely, event: dict[str, str]) -> None:
    """The endpoint. Whoever calls it answers 200 when it has returned."""
    app.enqueue("payment.received", event, unique_key=event["id"])


def handler(_: Context, event: dict[str, str], places: Places) -> None:
    with opened(places.database) as db:
        db.execute("insert into payments values (?)", (event["account"],))
