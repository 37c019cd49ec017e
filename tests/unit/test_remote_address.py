"""White lists: what RocketMQ takes an entry for, and what an entry must never match."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.remote_address import IllegalRemoteAddress, remote_address_strategy
from tests.worlds.acl_test_data import vectors

#: RocketMQ loses a part after `::`, and no address matches; it wants ranges and stars at the end.
READ_AS_WRITTEN: dict[str, list[str]] = {"FE80::A-F": ["fe80::c"], "1050::5:*:1": [], "1050::1-2:300c:5": []}

V4_PARTS = st.tuples(*[st.integers(0, 255)] * 4)
V6_PARTS = st.tuples(*[st.integers(0, 0xFFFF)] * 8)


def matches(text: str, host: str) -> bool:
    strategy = remote_address_strategy(text)
    return strategy is not None and strategy.match(host)


def dotted(parts: tuple[int, ...]) -> str:
    return ".".join(map(str, parts))


def test_an_entry_means_what_it_means_to_rocketmq() -> None:
    all_hosts = next(vector["matched"] for vector in vectors("strategies") if vector["text"] == "*")
    for vector in vectors("strategies"):
        text = vector["text"]
        if "error" in vector and text not in READ_AS_WRITTEN:
            with pytest.raises(IllegalRemoteAddress, match="names no addresses"):
                remote_address_strategy(text)
        else:
            expected = READ_AS_WRITTEN.get(text, vector.get("matched"))
            assert [host for host in all_hosts if matches(text, host)] == expected, text


@given(V4_PARTS, V4_PARTS)
def test_an_address_matches_itself_alone(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    assert matches(dotted(one), dotted(one))
    assert matches(dotted(one), dotted(other)) == (one == other)


@given(st.data(), V4_PARTS)
def test_every_part_of_ipv4_is_compared_as_a_number(data: st.DataObject, host: tuple[int, ...]) -> None:
    entry, expected = [], True
    for part in host:
        low, high = sorted(data.draw(st.tuples(st.integers(0, 255), st.integers(0, 255))))
        text, fits = data.draw(
            st.sampled_from([("*", True), (f"{low}-{high}", low <= part <= high), (str(low), part == low)])
        )
        entry.append(text)
        expected = expected and fits
    assert matches(".".join(entry), dotted(host)) == expected


@given(V6_PARTS, st.integers(0, 7), V6_PARTS)
def test_any_spelling_of_an_ipv6_address_is_that_address(
    parts: tuple[int, ...], zeros: int, other: tuple[int, ...]
) -> None:
    parts = (*parts[:zeros], *[0] * (7 - zeros), *parts[7:])
    address = ipaddress.IPv6Address(":".join(f"{part:x}" for part in parts))
    spellings = [str(address), address.exploded, str(address).upper(), f"[{address}]", f"{address}%eth0"]
    for entry in spellings[:3]:
        assert all(matches(entry, host) for host in spellings)
        assert matches(entry, ":".join(f"{part:x}" for part in other)) == (parts == other)


@given(V6_PARTS, st.integers(1, 7), V6_PARTS)
def test_a_star_after_fewer_parts_means_all_that_begin_so(
    parts: tuple[int, ...], count: int, other: tuple[int, ...]
) -> None:
    entry = ":".join([*(f"{part:x}" for part in parts[:count]), "*"])
    host = ":".join(f"{part:x}" for part in (*parts[:count], *other[count:]))
    assert matches(entry, host)
    assert matches(entry, ":".join(f"{part:x}" for part in other)) == (parts[:count] == other[:count])


@given(V4_PARTS)
def test_ipv4_within_ipv6_is_ipv4(parts: tuple[int, ...]) -> None:
    assert matches(dotted(parts), f"::ffff:{dotted(parts)}")


@pytest.mark.parametrize(
    ("entry", "host"),
    [
        ("192.168.0.1", "192.168.0.10"),
        ("192.168.0.1", "92.168.0.1"),
        ("10.0.0.1-9", "10.0.0.10"),
        ("192.168.*.5", "192.168.1.6"),  # RocketMQ stops at the first range
        ("1.2.3.4", "1.2.3.4.5"),
        ("1.2.3.4", "1.2.3"),
        ("1.2.3.4", ""),
        ("192.168.*.*", "192.168.evil.example"),
        ("10.0.0.*", "fe80::10"),
        ("::*", "0.0.0.5"),
    ],
)
def test_what_looks_alike_does_not_match(entry: str, host: str) -> None:
    assert not matches(entry, host)


def test_a_blank_entry_means_nobody() -> None:
    assert remote_address_strategy(" ") is None


def test_everybody_has_three_spellings_and_may_have_no_ip_address() -> None:
    assert all(matches(text, "broker-a") for text in ("*", "*.*.*.*", "*:*:*:*:*:*:*:*"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1.2.3", "has 3 parts"),
        ("1.2.3.256", "more than 255"),
        ("1.2.3.9-5", "the range '9-5' is empty"),
        ("1.2.3.-5", "'' is not a part of an address"),
        ("01.2.3.4", "'01' is not a part"),
        ("１.2.3.4", "is not a part"),  # noqa: RUF001 - a digit, but not one of an address
        ("1.2.{3,4}.5", "braces"),
        ("1.2.3.4,", None),
        (",", "an empty list"),
        ("1.2.3{4}", "braces"),
        ("fe80::1::2", "is not a part"),
        ("1:2:3:4:5:6:7", "has 7 parts"),
        ("1:2:3:4:5:6:7:8:9", "has 9 parts"),
        ("1:2:3:4::5:6:7:8", "more than 8 parts"),
        ("::12345", "'12345' is not a part"),
        ("broker-a", "has 1 parts"),
    ],
)
def test_an_entry_that_says_nothing_is_named_with_the_reason(text: str, reason: str | None) -> None:
    if reason is None:
        assert matches(text, "1.2.3.4")
        return
    with pytest.raises(IllegalRemoteAddress) as caught:
        remote_address_strategy(text)
    assert repr(text) in str(caught.value)
    assert reason in str(caught.value)


@given(st.text("0123456789abcf.:*-{},", max_size=24), st.text("0123456789abcf.:%[]", max_size=24))
def test_no_text_does_anything_else(text: str, host: str) -> None:
    try:
        strategy = remote_address_strategy(text)
    except IllegalRemoteAddress:
        return
    assert strategy is None or isinstance(strategy.match(host), bool)
