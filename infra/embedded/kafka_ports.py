"""Free ports for the embedded Kafka, and the identity of the cluster that answers at a port."""

from __future__ import annotations

import random
import socket
import struct

from cdf.errors import ConfigError

__all__ = ["find_free_port", "is_free", "read_cluster_id"]


def find_free_port(*, other_than: int = 0) -> int:
    """A port below the range for outgoing connections (from 32768 or 49152): while the broker is down, no such connection
    may occupy its port. A client that keeps connecting to such a port even connects to itself."""
    for _ in range(100):
        port = random.randrange(20000, 32768)
        if port != other_than and is_free(port):
            return port
    raise ConfigError("no free port between 20000 and 32767", hint="list the programs that listen there: ss -ltn")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Like Java: a port with only closed connections is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def read_cluster_id(port: int) -> str | None:
    """The id of the cluster whose broker answers at the port; None: no broker is ready there."""
    # Kafka's Metadata request, version 2, without topics: length, key, version, correlation, no client id, no topics
    request = struct.pack(">ihhihi", 14, 3, 2, 0, -1, 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(request)
            with connection.makefile("rb") as answer:
                (length,) = struct.unpack(">i", answer.read(4))
                # another length: the server does not speak Kafka
                return _parse_cluster_id(answer.read(length)) if 0 < length < 10_000 else None
    except (OSError, struct.error, UnicodeDecodeError):
        return None


def _parse_cluster_id(answer: bytes) -> str | None:
    def text(at: int) -> tuple[str | None, int]:
        (length,) = struct.unpack_from(">h", answer, at)
        end = at + 2 + max(length, 0)
        return (answer[at + 2 : end].decode() if length >= 0 else None), end

    _, brokers = struct.unpack_from(">ii", answer)
    at = 8
    for _ in range(brokers):
        _, at = text(at + 4)  # the host, after the id
        _, at = text(at + 4)  # the rack, after the port
    cluster, _ = text(at)
    return cluster if brokers else None
