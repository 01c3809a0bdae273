"""The `Idempotency-Key` header for ASGI apps."""
