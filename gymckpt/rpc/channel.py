"""Channels to the services, with the bounds and the keepalive that the servers expect."""

from __future__ import annotations

import re

import grpc

from gymckpt.errors import InvalidField
from gymckpt.rpc.codec import MESSAGE_BYTES

KEEPALIVE_SECONDS = 20

# A client that pings more often than the server allows is cut off (`too_many_pings`): both sides take these from here.
KEEPALIVE_OPTIONS = (
    ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_SECONDS * 500),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
MESSAGE_OPTIONS = (
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
)
CHANNEL_OPTIONS = (
    *KEEPALIVE_OPTIONS,
    *MESSAGE_OPTIONS,
    # A server that comes back is found soon, by each channel for itself.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
    # Services of one run speak to each other directly.
    ("grpc.enable_http_proxy", 0),
)
_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})\Z")


def check_address(address: str, field: str = "address") -> str:
    """Returns `address`; raises InvalidField unless it is `host:port` or `unix:<path>`."""
    if address.startswith("unix:") and len(address) > len("unix:"):
        return address
    found = _HOST_PORT.match(address)
    if found is None or int(found[2]) > 65535:
        raise InvalidField(f"{field} must be host:port or unix:<path>, got {address[:200]!r}", field=field)
    return address


def open_channel(address: str) -> grpc.aio.Channel:
    """A channel to `host:port` or `unix:<path>`, connected when first used; the caller closes it. Raises InvalidField."""
    return grpc.aio.insecure_channel(check_address(address), options=CHANNEL_OPTIONS)
