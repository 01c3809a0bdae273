"""A search index: read the product, put it under its id."""

from places import Places, opened, post

from oncely import Context

TABLES = """
create table products (id text, name text);
insert into products values ('7', 'a red bicycle');
"""


def handler(_: Context, product_id: str, places: Places) -> str:
    with opened(places.database) as db:
        product = db.execute("select name from products where id = ?", (product_id,)).fetchone()
        if product is None:
            return "skipped"
        post(places.service, f"{product_id}: {product[0]}")
        return "put"
