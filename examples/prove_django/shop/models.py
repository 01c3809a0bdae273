from django.db import models


class Order(models.Model):
    number = models.CharField(max_length=40)


class Shipment(models.Model):
    order = models.CharField(max_length=40)


class ShippedOrder(models.Model):
    order = models.CharField(max_length=40, unique=True)
