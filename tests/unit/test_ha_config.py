"""Settings of high availability: what is out of range is named when the settings are made, not when they are used."""

from __future__ import annotations

import re

import pytest

from rmq_actors.ha.config import HaConfig
from rmq_actors.wire.address import IllegalAddress, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:10912", ("127.0.0.1", 10912)),
        ("broker-a.example:1", ("broker-a.example", 1)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "host", ":1", "host:", "host:0", "host:65536", "host:-1", "a..b:1", f"{'x' * 64}:1"]
)
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(IllegalAddress, match=f"ha_master_address: {re.escape(repr(text))}"):
        HaConfig(ha_master_address=text)


def test_the_numbers_of_replicas_must_be_in_order() -> None:
    assert HaConfig().acks_required == 1
    assert HaConfig(total_replicas=3, in_sync_replicas=3).acks_required == 2
    assert HaConfig().acks_min is None
    assert HaConfig(enable_auto_in_sync_replicas=True).acks_min == 0
    with pytest.raises(ValueError, match="in_sync_replicas 3 and total_replicas 2 are not in this order"):
        HaConfig(in_sync_replicas=3)
