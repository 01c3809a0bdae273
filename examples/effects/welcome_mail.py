"""A welcome mail. The provider takes no key, but can be asked: a fence with `verify`."""

from pathlib import Path

from world import Mail

from oncely import Context, Oncely, Receipt, key


def register(app: Oncely, folder: Path) -> None:
    mail = Mail(folder, "mail")

    @app.job("user.welcome")
    def welcome(ctx: Context, address: str) -> None:
        ctx.fence("mail", mail.send, address, "welcome", verify=mail.find)


def publish(app: Oncely) -> Receipt:
    return app.enqueue(
        "user.welcome", "ann@example.org", idempotency_key=key("user", "ann", "welcome")
    )
