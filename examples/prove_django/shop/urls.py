"""Two routes that take an order: a client that got no answer sends it again."""

import json

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from shop.models import Order, ShippedOrder


@csrf_exempt
def take(request: HttpRequest) -> HttpResponse:
    """Broken: the second request makes a second order."""
    Order.objects.create(number=json.loads(request.body)["number"])
    return HttpResponse(status=201)


@csrf_exempt
def take_once(request: HttpRequest) -> HttpResponse:
    """Mended: the key of the request is unique, in the transaction that makes the order."""
    with transaction.atomic():
        _, is_new = ShippedOrder.objects.get_or_create(order=request.headers["Idempotency-Key"])
        if is_new:
            Order.objects.create(number=json.loads(request.body)["number"])
    return HttpResponse(status=201)


urlpatterns = [path("orders", take), path("orders-once", take_once)]
