import json

import pytest

from oncely.model.redact import HIDDEN, Redact, masked_url


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
        "no connection to postgresql://shop:s3cr3t@db/shop",
        "GET https://s3cr3t@example.com/a",
        """[{"name": "Authorization", "value": "Custom s3cr3t"}""",
        "{'name': 'X-Api-Key', 'value': 's3cr3t'}, …",
        "Authorization: Token s3cr3t",
        "error=password=s3cr3t",
        "it said: token: s3cr3t",
        "Authorization: Digest username=ann, response=s3cr3t",
        "authorization=Token s3cr3t",
        "Cookie: theme=dark; sid=s3cr3t; lang=en",
        "Set-Cookie: a=1; b=s3cr3t",
        "pwd=s3cr3t",
        "db_pass: s3cr3t",
        "userPass=s3cr3t",
        "auth='s3cr3t'",
        "jwt=s3cr3t",
        "session: s3cr3t",
        "sessionid=s3cr3t",
        "pin=s3cr3t",
        "OTP: s3cr3t",
        "X-Signature: s3cr3t",
        "AWS_ACCESS_KEY_ID=s3cr3t",
        "-----BEGIN PRIVATE KEY-----\ns3cr3t\n-----END PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\ns3cr3t and cut",
        "mysql --password s3cr3t --user ann",
        "mysql --db-password 's3cr3t' --user ann",
    ],
)
def test_messages_and_tracebacks(text: str) -> None:
    shown = Redact().text(text)
    assert "s3cr3t" not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize(
    "text",
    [
        "author=Ann",
        "passenger: 2",
        "mapping=x, spinner=y",
        "possession=house",
        "https://example.com/a@b",
        "a --pager less",
        "ann@example.com",
        "passed: 7",
    ],
)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert Redact().text(text) == text


def test_fields_whose_names_are_words_for_a_secret() -> None:
    names = [
        "pwd",
        "dbPass",
        "auth",
        "jwt",
        "session",
        "PIN",
        "otp_code",
        "signature",
        "access-key",
    ]
    assert Redact()(dict.fromkeys(names, "x")) == dict.fromkeys(names, HIDDEN)
    plain = {"author": "Ann", "passed": 1, "spin": 2, "opinion": 3, "hotplug": 4}
    assert Redact()(plain) == plain


def test_a_field_that_is_named_beside_its_value() -> None:
    headers = [
        {"name": "Authorization", "value": "Custom x"},
        {"key": "Cookie", "values": ["a=1"]},
        {"name": "Accept", "value": "*/*"},
    ]
    assert Redact()(headers) == [
        {"name": "Authorization", "value": HIDDEN},
        {"key": "Cookie", "values": HIDDEN},
        {"name": "Accept", "value": "*/*"},
    ]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.com/hooks/orders", "https://example.com/hooks/orders"),
        ("https://example.com:8443/order-paid/", "https://example.com:8443/order-paid/"),
        (
            "https://example.com/a?token=abc&page=2",
            f"https://example.com/a?token={HIDDEN}&page={HIDDEN}",
        ),
        ("https://example.com/a?abc", f"https://example.com/a?{HIDDEN}"),
        (
            "https://hooks.example.com/services/T012AB3CD/B045EF6GH/aBcDeFgHiJkLmNoP",
            f"https://hooks.example.com/services/{HIDDEN}/{HIDDEN}/{HIDDEN}",
        ),
        ("not a url", HIDDEN),
        ("https://user:pw@example.com/", HIDDEN),
    ],
)
def test_the_secrets_in_a_url_are_masked(url: str, shown: str) -> None:
    assert masked_url(url) == shown


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
    for part in ("a=", "--password", "://", "-----BEGIN A-----", "cookie:", "name: ", "'name': '"):
        Redact().text(part * 20_000)
