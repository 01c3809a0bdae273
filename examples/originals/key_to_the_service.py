"""A charge: the provider takes a key, and remembers it for a day."""

from places import Places, post

from oncely import Context

TABLES = ""


def handler(_: Context, order: str, places: Places) -> str:
    return post(places.service, f"charge {order}", key=f"order:{order}:charge")
