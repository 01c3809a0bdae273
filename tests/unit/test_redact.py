import json

import pytest

from oncely.surface.dashboard.redact import HIDDEN, Redact


def test_fields_are_hidden_by_name_wherever_they_are() -> None:
    shown = Redact()(
        {
            "order": 7,
            "Password": "hunter2",
            "cards": [{"cardNumber": "4111"}],
            "headers": {"X-Api-Key": "k", "accept": "*/*"},
            "access_token": {"nested": "x"},
        }
    )
    assert shown == {
        "order": 7,
        "Password": HIDDEN,
        "cards": HIDDEN,
        "headers": {"X-Api-Key": HIDDEN, "accept": "*/*"},
        "access_token": HIDDEN,
    }


def test_json_inside_a_text_is_looked_into() -> None:
    shown = Redact()({"body": json.dumps({"iban": "DE00", "to": [{"secret": 1}], "n": 1})})
    assert json.loads(shown["body"]) == {"iban": HIDDEN, "to": [{"secret": HIDDEN}], "n": 1}


@pytest.mark.parametrize(
    "text",
    [
        "login(user='a', password='s3cr3t')",
        "{'api-key': 's3cr3t', 'a': 1",
        "Authorization: Bearer s3cr3t",
        'POST /?token=s3cr3t&page=2 "quoted"',
        "db_password = s3cr3t",
    ],
)
def test_messages_and_tracebacks(text: str) -> None:
    shown = Redact().text(text)
    assert "s3cr3t" not in shown
    assert HIDDEN in shown


def test_own_names_come_on_top() -> None:
    redact = Redact(["Customer-Name"])
    assert redact({"customerName": "Ann", "password": "x", "name": "b"}) == {
        "customerName": HIDDEN,
        "password": HIDDEN,
        "name": "b",
    }
    assert redact.text("customer_name=Ann") == f"customer_name={HIDDEN}"


def test_deep_and_long_values_come_to_an_end() -> None:
    deep: object = "x"
    for _ in range(5_000):
        deep = [deep]
    assert HIDDEN in json.dumps(Redact()(deep), ensure_ascii=False)
    # A pattern that is quadratic in this runs into the time-out of the test.
    long = "passwor" * 50_000 + "token" * 50_000 + " " * 100_000
    assert Redact()(long) == long
