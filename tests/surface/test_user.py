"""`oncely user`: the password comes from standard input, and never shows."""

import io

import pytest

from oncely import Oncely
from tests.surface.command import Command

PASSWORD = "correct horse battery"


def test_users_are_made_listed_changed_and_removed(
    at: Command, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))
    done = at("user", "create", "ada", "--role", "operator")
    assert (done.code, done.out) == (0, "created user ada, operator\n")
    assert "ada  operator  created" in at("user", "list").out
    assert at("user", "set", "ada", "--role", "reader").code == 0
    [listed] = at("user", "list", "--json").json()
    assert (listed["name"], listed["role"]) == ("ada", "reader")
    assert "password" not in listed
    monkeypatch.setattr("sys.stdin", io.StringIO("too short\n"))
    refused = at("user", "set", "ada", "--password")
    assert (refused.code, refused.out) == (2, "")
    assert "the password has 9 characters; expected 12" in refused.err
    assert "too short" not in refused.err
    with Oncely(url) as app:
        acts = [(entry.act, entry.name) for entry in app.audit()]
    assert acts == [("set_user", "ada"), ("create_user", "ada")]
    assert at("user", "remove", "ada").out == "removed user ada\n"
    assert at("user", "list").out.startswith("no users")
    assert at("user", "remove", "bob").code == 1
