"""Tokens in the store: the key is shown once and only its hash kept."""

from hashlib import sha256
from typing import Any

import pytest

from oncely import InvalidInput, NewToken, Oncely, TokenNotFound
from oncely.model.token import Kept, id_of
from oncely.store import tokens
from tests.engine.steps import sql


def kept(app: Oncely, made: NewToken) -> Kept:
    found = app._engine.run(lambda _: tokens.find(made.token.token_id), "read")
    assert found is not None
    return found


def test_a_token_is_made_with_what_it_was_asked_for(app: Oncely) -> None:
    made = app.create_token(["admin", "publish"], queues=["b", "a", "b"], name="till 1")
    plain = app.create_token(["read"], expires_in=60)
    assert (made.token.scopes, made.token.queues) == (("publish", "admin"), ("a", "b"))
    assert (made.token.name, made.token.expires_at, made.token.valid) == ("till 1", None, True)
    assert plain.token.queues == ()
    assert plain.token.expires_at is not None
    assert app.tokens() == [made.token, plain.token]
    assert made.token.sees("a")
    assert not made.token.sees("c")
    assert plain.token.sees("c")
    assert made.token.may("admin")
    assert not made.token.may("work")


def test_they_are_listed_in_the_order_in_which_they_were_made(app: Oncely) -> None:
    made = [app.create_token(["read"]).token for _ in range(30)]
    assert app.tokens() == made


def test_only_a_hash_of_the_key_is_stored(app: Oncely) -> None:
    made = app.create_token(["read"])
    rows = str(sql(app, "select * from oncely.token"))
    secret = made.key.rpartition("_")[2]
    assert len(secret) == 43
    assert secret not in rows
    assert made.key not in str(made.token)
    assert sha256(made.key.encode()).hexdigest() in rows


def test_only_the_very_key_opens_it(app: Oncely) -> None:
    made, other = app.create_token(["read"]), app.create_token(["read"])
    assert id_of(made.key) == made.token.token_id
    assert kept(app, made).opens_with(made.key)
    for wrong in (other.key, made.key[:-1], f"{made.key}x", made.key.swapcase(), ""):
        assert not kept(app, made).opens_with(wrong)
    assert made.key != other.key


def test_one_that_is_revoked_or_expired_is_not_valid_and_stays_on_record(app: Oncely) -> None:
    revoked, expired = app.create_token(["read"]), app.create_token(["read"], expires_in=0)
    for _ in range(2):
        app.revoke_token(revoked.token.token_id)
    assert [token.valid for token in app.tokens()] == [False, False]
    assert app.tokens()[0].revoked_at is not None
    assert not kept(app, expired).token.valid
    assert app._engine.run(lambda _: tokens.any_token(), "read")


def test_an_empty_store_has_none(app: Oncely) -> None:
    assert app.tokens() == []
    assert not app._engine.run(lambda _: tokens.any_token(), "read")


def test_to_rotate_makes_an_heir_and_ends_the_old_one_after_the_overlap(app: Oncely) -> None:
    old = app.create_token(["publish", "read"], queues=["q"], name="till")
    heir = app.rotate_token(old.token.token_id, overlap=60)
    assert (heir.token.scopes, heir.token.queues, heir.token.name) == (
        ("publish", "read"),
        ("q",),
        "till",
    )
    assert heir.token.expires_at is None
    assert kept(app, heir).opens_with(heir.key)
    before = kept(app, old).token
    assert before.valid
    assert before.expires_at is not None
    app.rotate_token(old.token.token_id, overlap=3_600)
    assert kept(app, old).token.expires_at == before.expires_at, "it does not live longer by that"
    app.rotate_token(heir.token.token_id, overlap=0)
    assert not kept(app, heir).token.valid


def test_sent_again_after_a_lost_answer_there_is_one_heir(app: Oncely) -> None:
    old = app.create_token(["read"])
    making = tokens.Making("a" * 12, "digest", None, ["read"], [], None)
    for again in (False, True):
        token = app._engine.run(
            lambda _, again=again: tokens.rotate(  # type: ignore[misc]
                old.token.token_id, making, overlap_us=0, again=again
            ),
            "transaction",
        )
        assert token.token_id == "a" * 12
    assert len(app.tokens()) == 2


def test_what_is_gone_cannot_be_rotated_or_revoked(app: Oncely) -> None:
    revoked, expired = app.create_token(["read"]), app.create_token(["read"], expires_in=0)
    app.revoke_token(revoked.token.token_id)
    no_ids = ("nonsense", "", "a\0b", "\ud800", "ü")
    for token_id in (revoked.token.token_id, expired.token.token_id, *no_ids):
        with pytest.raises(TokenNotFound, match="no valid token"):
            app.rotate_token(token_id)
    for token_id in no_ids:
        with pytest.raises(TokenNotFound, match="oncely token list"):
            app.revoke_token(token_id)
    assert len(app.tokens()) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"scopes": []},
        {"scopes": ["write"]},
        {"scopes": "publish,read"},
        {"scopes": ["read"], "queues": "q"},
        {"scopes": ["read"], "queues": ["no name"]},
        {"scopes": ["read"], "queues": [f"q{n}" for n in range(101)]},
        {"scopes": ["read"], "name": ""},
        {"scopes": ["read"], "expires_in": -1},
        {"scopes": ["read"], "expires_in": float("nan")},
        {"scopes": ["read"], "expires_in": True},
    ],
)
def test_bad_input_makes_no_token(shared_app: Oncely, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        shared_app.create_token(**options)
    assert shared_app.tokens() == []
