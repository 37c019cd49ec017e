"""Which addresses an allow-list means: "10.0.0.7;10.1.0.0/16;fd00::/8", single addresses and networks (CIDR)."""

from __future__ import annotations

import ipaddress

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_networks(text: str) -> tuple[Network, ...]:
    """The networks of a list; a single address is a network of its own. None for an empty text, and for no other one.

    Raises `ValueError` naming the entry, or the text that has none: as an empty list it would allow all.
    """
    found = []
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        try:
            found.append(ipaddress.ip_network(entry))
        except ValueError as error:  # it quotes the entry
            raise ValueError(
                f"{error}: an allow-list has addresses and networks, such as 10.0.0.7;10.1.0.0/16"
            ) from None
    if text and not found:
        raise ValueError(f"{text!r} names no address: an allow-list is empty, which allows all, or has addresses")
    return tuple(found)


def is_allowed(networks: tuple[Network, ...], host: str) -> bool:
    """Whether an address is in one of the networks; an empty list allows all. IPv4 within IPv6 counts as IPv4."""
    if not networks:
        return True
    address = _address(host)
    return address is not None and any(address in network for network in networks)


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone. Its others are not told from those of other machines."""
    address = _address(host)
    return address is not None and address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
