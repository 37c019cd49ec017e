"""Whom the HA port takes, and what is said to whom it does not."""

from __future__ import annotations

import pytest

from rmq_actors.protocols.allowed_addresses import parse_networks
from rmq_actors.protocols.slave_admission import SlaveAdmission

ADMISSION = SlaveAdmission(
    parse_networks("10.0.0.0/8;127.0.0.0/8;::1"), connections_max=4, per_address_max=2, handshakes_max=10
)
A, B = "10.0.0.1", "10.0.0.2"


@pytest.mark.parametrize(
    ("host", "connected", "in_handshake", "refusal"),
    [
        (A, [], [], None),
        (A, [A], [], None),
        (A, [B, B], [B], None),
        ("192.0.2.1", [], [], "haAllowedAddresses does not have its address"),
        (A, [A, B, A], [], "2 connections of its address are open already (haConnectionsMaxPerAddress)"),
        (A, [A], [A], "2 connections of its address are open already (haConnectionsMaxPerAddress)"),
        (A, [], [A, A], "2 connections of its address are open already (haConnectionsMaxPerAddress)"),
        (A, [B] * 4, [], "4 connections are open already"),
        # Brokers of one machine share its address.
        ("127.0.0.1", ["127.0.0.1"] * 3, [], None),
        ("::1", ["::1"] * 3, [], None),
        ("::ffff:127.0.0.1", ["::ffff:127.0.0.1"] * 3, [], None),
        ("127.0.0.1", ["127.0.0.1"] * 4, [], "4 connections are open already"),
        # Who has not ended its handshake holds no place.
        (A, [B], [B] * 9, None),
        (A, [], [B] * 10, "10 TLS handshakes are under way (haHandshakesMax)"),
    ],
)
def test_a_peer_is_taken_or_told_why_not(
    host: str, connected: list[str], in_handshake: list[str], refusal: str | None
) -> None:
    assert ADMISSION.why_not(host, connected, in_handshake) == refusal


def test_after_a_handshake_the_place_may_be_taken() -> None:
    assert ADMISSION.why_no_more(3) is None
    assert ADMISSION.why_no_more(4) == "4 connections are open already"
