"""A search index. Putting a document under its id may be repeated: a step, and no key. Its version
goes along, so that a put that comes late does not replace a newer one."""

from pathlib import Path

from world import Index

from oncely import Context, Oncely, Receipt, key

PRODUCTS = {"7": (3, "a red bicycle")}


def register(app: Oncely, folder: Path) -> None:
    index = Index(folder, "index")

    def put(product_id: str) -> None:
        # Read here, so that a repeat puts what is true by then.
        version, name = PRODUCTS[product_id]
        index.put(product_id, version, name)

    @app.job("product.index")
    def update(ctx: Context, product_id: str) -> None:
        ctx.step("index", put, product_id)


def publish(app: Oncely) -> Receipt:
    # The version is in the key: a change that comes while a job runs is a job of its own.
    return app.enqueue("product.index", "7", idempotency_key=key("product", 7, "version", 3))
