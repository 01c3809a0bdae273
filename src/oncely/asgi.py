"""For ASGI apps: `IdempotencyMiddleware`."""

from oncely.surface.asgi.middleware import IdempotencyMiddleware

__all__ = ["IdempotencyMiddleware"]
