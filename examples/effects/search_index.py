"""A search index. Putting a document under its id may be repeated: a step, and no key."""

from pathlib import Path

from world import Storage

from oncely import Context, Oncely, Receipt

PRODUCTS = {"7": "a red bicycle"}


def register(app: Oncely, folder: Path) -> None:
    index = Storage(folder, "index")

    def put(product_id: str) -> str:
        # Read here, so that a repeat puts what is true by then.
        return index.put(product_id, PRODUCTS[product_id])

    @app.job("product.index")
    def update(ctx: Context, product_id: str) -> None:
        ctx.step("index", put, product_id)


def publish(app: Oncely) -> Receipt:
    return app.enqueue("product.index", "7", unique_key="product:7")
