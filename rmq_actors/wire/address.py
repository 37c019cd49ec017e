"""Addresses as RocketMQ writes them: "host:port"."""

from __future__ import annotations

import ipaddress
import re

#: More than a host's name can have: no text of a peer is looked at in full, or shown.
_ADDRESS_MAX_CHARS = 300
_SHOWN_CHARS = 80

_PORT = re.compile(r"\d{1,5}", re.ASCII)
#: ASCII, as Java looks names up, without what ends one address in a list of them, or makes a URL of it.
_HOST = re.compile(r"(?:(?![,;/])[!-~])+")


class IllegalAddress(ValueError):
    """Text that should be "host:port" and is not."""


def parse_address(text: str) -> tuple[str, int]:
    """Split "host:port"; an IPv6 address may stand in brackets. Raises `IllegalAddress`."""
    host, _, port = text.rpartition(":") if len(text) <= _ADDRESS_MAX_CHARS else ("", "", "")
    if not _HOST.fullmatch(host) or not _PORT.fullmatch(port) or not 0 < int(port) <= 65535:
        raise IllegalAddress(f"{text[:_SHOWN_CHARS]!r} is not an address of the form host:port")
    try:
        if ":" in host or host[0] == "[":
            host = host.removeprefix("[").removesuffix("]")
            ipaddress.IPv6Address(host)
        host.encode("idna")  # name lookup would fail on it later, with an error that names nothing
    except ValueError as error:
        raise IllegalAddress(f"{text[:_SHOWN_CHARS]!r}: {host!r} cannot be a host's name: {error}") from error
    return host, int(port)


def check_host(text: str) -> None:
    """Raise `IllegalAddress` for what can be no host's name or address, whether or not there is such a host."""
    try:
        parse_address(f"{text}:1")
    except IllegalAddress as error:
        raise IllegalAddress(f"{text[:_SHOWN_CHARS]!r} is no host's name or address") from error


def address_text(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    """A socket's address (IPv4 or IPv6) as "host:port"."""
    return f"{address[0]}:{address[1]}"
