"""Two tasks that ship an order: one ships twice if a worker dies, the other does not."""

from django_tasks import task  # Django 6: from django.tasks import task

from shop.models import Shipment, ShippedOrder


@task()
def ship(order: str) -> None:
    """Broken: two deliveries, or two workers, make two shipments."""
    if not Shipment.objects.filter(order=order).exists():
        Shipment.objects.create(order=order)


@task()
def ship_once(order: str) -> None:
    """Mended: the database refuses the second one."""
    ShippedOrder.objects.get_or_create(order=order)
