"""Ports of this machine for servers that tests start."""

import socket


def free_port() -> int:
    """Return a port at which nothing listens, for now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
