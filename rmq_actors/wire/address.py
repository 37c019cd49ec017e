"""Addresses as RocketMQ writes them: "host:port"."""

from __future__ import annotations


class IllegalAddress(ValueError):
    """Text that should be "host:port" and is not."""


def parse_address(text: str) -> tuple[str, int]:
    """Split "host:port". Raises `IllegalAddress`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= 65535:
        raise IllegalAddress(f"{text!r} is not an address of the form host:port")
    try:
        host.encode("idna")  # name lookup would fail on it later, with an error that names nothing
    except UnicodeError as error:
        raise IllegalAddress(f"{text!r}: {host!r} can be no host's name: {error}") from error
    return host.strip("[]"), int(port)


def address_text(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    """A socket's address (IPv4 or IPv6) as "host:port"."""
    return f"{address[0]}:{address[1]}"
