"""Whom a broker's HA port takes: by address, and by how many there are already."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from rmq_actors.protocols.allowed_addresses import Network, is_allowed, is_loopback


@attrs.frozen
class SlaveAdmission:
    """The limits of one HA port. A refusal is said in words, for the log."""

    allowed: tuple[Network, ...]
    connections_max: int
    per_address_max: int
    #: How many handshakes of TLS may be under way: they hold no place of a slave, and end by themselves.
    handshakes_max: int

    def why_not(self, host: str, connected: Collection[str], in_handshake: Collection[str] = ()) -> str | None:
        """Why a peer at `host` is refused, None if it is taken; the others are the hosts of those that are there."""
        if not is_allowed(self.allowed, host):
            return "haAllowedAddresses does not have its address"
        of_address = sum(each == host for group in (connected, in_handshake) for each in group)
        # Whoever is on this machine can do worse, and a cluster on one machine has many brokers.
        if of_address >= self.per_address_max and not is_loopback(host):
            return f"{self.per_address_max} connections of its address are open already (haConnectionsMaxPerAddress)"
        if len(in_handshake) >= self.handshakes_max:
            return f"{self.handshakes_max} TLS handshakes are under way (haHandshakesMax)"
        return self.why_no_more(len(connected))

    def why_no_more(self, connected: int) -> str | None:
        """Why one more slave is refused, whoever it is; None if it is taken."""
        return f"{connected} connections are open already" if connected >= self.connections_max else None
