"""Ports of this machine for tests."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def closed() -> Iterator[int]:
    """A port that refuses connections, by IPv4 and by IPv6: taken and not listened to, so that
    no other process can open it meanwhile."""
    both = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if both else socket.AF_INET) as taken:
        if both:
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        taken.bind(("", 0))
        yield taken.getsockname()[1]
