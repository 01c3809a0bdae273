"""Handlers with Django's ORM, and a view."""

import json
import os
from typing import Any

import django
from django.conf import settings

if not settings.configured:
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["localhost"],
        SECRET_KEY="not a secret: a test",
        USE_TZ=True,
    )
    django.setup()

from django.core.cache import cache
from django.core.mail import get_connection, send_mail
from django.core.wsgi import get_wsgi_application
from django.db import IntegrityError, connection, models, transaction
from django.db.models import F
from django.http import HttpRequest, JsonResponse
from django.urls import path

from tests.prove.zoo.entries import expect


class Order(models.Model):  # type: ignore[misc]
    number = models.CharField(max_length=40, unique=True)
    state = models.CharField(max_length=10, default="new")

    class Meta:
        app_label = "zoo"


class Shipment(models.Model):  # type: ignore[misc]
    number = models.CharField(max_length=40)

    class Meta:
        app_label = "zoo"


class Stock(models.Model):  # type: ignore[misc]
    sku = models.CharField(max_length=10)
    n = models.IntegerField()

    class Meta:
        app_label = "zoo"


def make_tables() -> None:
    with connection.schema_editor() as editor:
        for model in (Order, Shipment, Stock):
            editor.create_model(model)
    Stock.objects.create(sku="tea", n=10)
    connection.close()


TABLES: dict[str, Any] = {"prepare": make_tables}


def send(order: str) -> None:
    host, _, port = os.environ["SHOP_SMTP"].partition(":")
    with get_connection(
        "django.core.mail.backends.smtp.EmailBackend", host=host, port=int(port)
    ) as line:
        send_mail(order, "It is on its way.", "shop@example.org", ["ann@example.org"],
                  connection=line)  # fmt: skip


@expect("sound", "get_or_create on a unique column.", **TABLES)
def get_or_create(order: str) -> None:
    Order.objects.get_or_create(number=order)


@expect("doubled", "The stock goes down with each delivery.", **TABLES)
def f_expression(order: str) -> None:
    Stock.objects.filter(sku="tea").update(n=F("n") - 1)


@expect("sound", "The order is created in the transaction that takes from the stock.", **TABLES)
def atomic_with_key(order: str) -> None:
    try:
        with transaction.atomic():
            Order.objects.create(number=order)
            Stock.objects.filter(sku="tea").update(n=F("n") - 1)
    except IntegrityError:
        pass


@expect("lost", "The order is created outside of atomic(), and then taken for done.", **TABLES)
def atomic_too_late(order: str) -> None:
    _, created = Order.objects.get_or_create(number=order)
    if created:
        with transaction.atomic():
            Stock.objects.filter(sku="tea").update(n=F("n") - 1)


@expect("lost", "on_commit runs after the commit, and a crash between them loses the mail.",
        mail=True, **TABLES)  # fmt: skip
def mail_on_commit(order: str) -> None:
    with transaction.atomic():
        _, created = Order.objects.get_or_create(number=order)
        if created:
            transaction.on_commit(lambda: send(order))


@expect("doubled", "exists() and create() are two statements in autocommit.", **TABLES)
def exists_then_create(order: str) -> None:
    if not Shipment.objects.filter(number=order).exists():
        Shipment.objects.create(number=order)


@expect("sound", "The state changes once, and the shipment is made with that.", **TABLES)
def update_where_state(order: str) -> None:
    Order.objects.get_or_create(number=order)
    with transaction.atomic():
        if Order.objects.filter(number=order, state="new").update(state="sent"):
            Shipment.objects.create(number=order)


@expect("doubled", "The cache of Django is in the memory of the process.", **TABLES)
def cache_as_mark(order: str) -> None:
    if cache.add(f"shipped:{order}", True):
        Shipment.objects.create(number=order)


@expect("sound", "update_or_create on a unique column writes the same again.", **TABLES)
def update_or_create(order: str) -> None:
    Order.objects.update_or_create(number=order, defaults={"state": "paid"})


@expect("lost", "bulk_create ignores conflicts, and an error of the database too.", **TABLES)
def bulk_create_swallows(order: str) -> None:
    from django.db import DatabaseError

    try:
        Order.objects.bulk_create([Order(number=order)], ignore_conflicts=True)
    except DatabaseError:
        pass


def order_view(request: HttpRequest) -> JsonResponse:
    body = json.loads(request.body)
    made = Shipment.objects.create(number=body["number"])
    return JsonResponse({"id": made.pk}, status=201)


urlpatterns = [path("orders", order_view)]
expect("doubled", "Each request makes a shipment.", name="view", request="POST /orders", args=(),
       options={"payload": {"number": "order-1"}}, **TABLES)(get_wsgi_application())  # fmt: skip
