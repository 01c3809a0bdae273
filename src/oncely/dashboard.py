"""For ASGI apps: `Dashboard`."""

from oncely.surface.dashboard.site import Dashboard

__all__ = ["Dashboard"]
