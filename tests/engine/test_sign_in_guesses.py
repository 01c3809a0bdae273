"""Guesses of passwords, counted in the store."""

from concurrent.futures import ThreadPoolExecutor

from oncely import Oncely
from oncely.store import sign_in_guesses
from oncely.store.sign_in_guesses import WINDOW_SECONDS, Place
from tests.engine.steps import engine_of, sql

ADDRESS, ACCOUNT = Place("from one address", 3), Place("of one account", 5)


def reserve(app: Oncely, *places: Place) -> int:
    return app._engine.run(lambda _: sign_in_guesses.reserve(places), "transaction")


def guesses(app: Oncely) -> dict[str, int]:
    return dict(sql(app, "select place, guesses from oncely.sign_in_guess"))


def let_the_window_pass(app: Oncely) -> None:
    by = (
        f"interval '{WINDOW_SECONDS} s'" if engine_of(app) == "postgres" else WINDOW_SECONDS * 10**6
    )
    sql(app, f"update oncely.sign_in_guess set ends_at = ends_at - {by}")


def test_a_place_that_is_full_takes_no_guess_until_its_window_is_over(app: Oncely) -> None:
    for _ in range(3):
        assert reserve(app, ADDRESS) == 0
    assert 0 < reserve(app, ADDRESS) <= WINDOW_SECONDS
    assert reserve(app, ACCOUNT) == 0, "another place has its own count"
    let_the_window_pass(app)
    assert reserve(app, ADDRESS) == 0
    assert guesses(app) == {ADDRESS.digest: 1}, "counts that are over are gone"


def test_a_guess_that_one_place_refuses_does_not_count_in_the_next(app: Oncely) -> None:
    """So that one address alone cannot lock an account."""
    found = [reserve(app, ADDRESS, ACCOUNT) for _ in range(9)]
    assert [wait > 0 for wait in found] == [False] * 3 + [True] * 6
    assert guesses(app)[ACCOUNT.digest] == 3


def test_a_right_one_does_not_count(app: Oncely) -> None:
    for _ in range(9):
        assert reserve(app, ADDRESS, ACCOUNT) == 0
        app._engine.run(lambda _: sign_in_guesses.release((ADDRESS, ACCOUNT)), "transaction")
    assert set(guesses(app).values()) == {0}


def test_many_at_once_are_counted_exactly(app: Oncely) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: reserve(app, ADDRESS, ACCOUNT), range(40)))
    assert found.count(0) == ADDRESS.limit
    assert guesses(app) == {ADDRESS.digest: 40, ACCOUNT.digest: ADDRESS.limit}
