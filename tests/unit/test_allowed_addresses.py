"""Allow-lists: addresses and networks."""

from __future__ import annotations

import pytest

from rmq_actors.ha.config import HaConfig
from rmq_actors.protocols.allowed_addresses import is_allowed, parse_networks

LIST = " 10.0.0.7; 10.1.0.0/16 ;fd00::/8;"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("10.0.0.7", True),
        ("10.0.0.70", False),
        ("10.1.255.255", True),
        ("10.2.0.0", False),
        ("::ffff:10.0.0.7", True),
        ("::ffff:10.0.0.8", False),
        ("fd12::1", True),
        ("fd12::1%eth0", True),
        ("fe80::1", False),
        ("a-name", False),
        ("", False),
    ],
)
def test_an_address_is_in_a_list(host: str, expected: bool) -> None:
    assert is_allowed(parse_networks(LIST), host) is expected


def test_an_empty_list_allows_all() -> None:
    assert is_allowed(parse_networks(""), "192.0.2.1")
    assert is_allowed(parse_networks(""), "a-name")


@pytest.mark.parametrize("text", [";;", " ; ", ";", " "])
def test_a_list_that_names_no_address_is_not_an_empty_one(text: str) -> None:
    with pytest.raises(ValueError, match=rf"ha_allowed_addresses: '{text}' names no address"):
        HaConfig(ha_allowed_addresses=text)


@pytest.mark.parametrize("text", ["here", "10.0.0.1/8", "10.0.0.256", "10.0.0.1,10.0.0.2", "0/0"])
def test_what_is_no_network_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"ha_allowed_addresses: .*" + text.partition("/")[0]):
        HaConfig(ha_allowed_addresses=text)
