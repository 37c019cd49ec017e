"""Which addresses a white list means (RemoteAddressStrategyFactory).

    *                      every address; so do *.*.*.* and *:*:*:*:*:*:*:*
    192.168.0.1            this one
    192.168.0.*            any number in its place; 192.168.*.* too
    192.168.1-10.*         a range, both ends included
    192.168.0.{1,2,3}      one of these as the last part
    10.0.0.1,10.0.0.2      several
    fe80::1-200:*          IPv6: parts are hexadecimal, `::` fills up with zeros
    2001:db8:*             IPv6 without `::` and with fewer than 8 parts: all that begin so

Every part is compared as a number, never as text. (RocketMQ compares text, and ignores what follows the first range:
192.168.*.5 means 192.168.*.* there.)
"""

from __future__ import annotations

import functools
import ipaddress

import attrs

#: One part of an address: the least and the greatest number that fit.
_Range = tuple[int, int]

_EVERY_ADDRESS = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})


class IllegalRemoteAddress(ValueError):
    """Text that does not say which addresses are meant; the message says why."""


@attrs.frozen
class RemoteAddressStrategy:
    """Addresses, as an operator wrote them."""

    text: str
    #: Forms of addresses, one of which must fit; None: every address fits.
    _alternatives: tuple[tuple[_Range, ...], ...] | None

    def match(self, host: str) -> bool:
        """Whether an address is meant; only `*` means a text that is not an IP address."""
        if self._alternatives is None:
            return True
        parts = _parts(host)
        return parts is not None and any(_fit(parts, ranges) for ranges in self._alternatives)


def remote_address_strategy(text: str) -> RemoteAddressStrategy | None:
    """Parse one entry of a white list; None for a blank one, which means no address. Raises `IllegalRemoteAddress`."""
    stripped = text.strip()
    if not stripped:
        return None
    if stripped in _EVERY_ADDRESS:
        return RemoteAddressStrategy(text, None)
    try:
        return RemoteAddressStrategy(text, tuple(map(_ranges, _written_out(stripped))))
    except ValueError as error:
        raise IllegalRemoteAddress(f"{text!r} names no addresses: {error}") from None


def _written_out(text: str) -> list[str]:
    """The entries of a list, with or without braces."""
    head, brace, listed = text.removesuffix("}").partition("{")
    if not brace:
        head, listed = "", text
    elif not text.endswith("}") or head[-1:] not in {".", ":"}:
        raise ValueError("only the last part of an address may be in braces")
    entries = [head + entry.strip() for entry in listed.split(",") if entry.strip()]
    if not entries:
        raise ValueError("an empty list")
    return entries


def _ranges(text: str) -> tuple[_Range, ...]:
    if ":" not in text:
        parts = text.split(".")
        if len(parts) != 4:
            raise ValueError(f"{text!r} has {len(parts)} parts, IPv4 has 4 and IPv6 has colons")
        return tuple(_range(part, 10, 255) for part in parts)
    head, double_colon, tail = text.partition("::")
    before, after = ([_range(part, 16, 0xFFFF) for part in side.split(":") if side] for side in (head, tail))
    missing = 8 - len(before) - len(after)
    if double_colon:
        if missing < 1:
            raise ValueError(f"{text!r} has more than 8 parts")
        return (*before, *[(0, 0)] * missing, *after)
    if missing < 0 or (missing and before[-1] != (0, 0xFFFF)):
        raise ValueError(f"{text!r} has {len(before)} parts, IPv6 has 8")
    return (*before, *[(0, 0xFFFF)] * missing)


def _range(text: str, base: int, greatest: int) -> _Range:
    if text == "*":
        return 0, greatest
    first, minus, last = text.partition("-")
    low = _number(first, base, greatest)
    high = _number(last, base, greatest) if minus else low
    if low > high:
        raise ValueError(f"the range {text!r} is empty")
    return low, high


def _number(text: str, base: int, greatest: int) -> int:
    digits = "0123456789abcdefABCDEF"[: 10 if base == 10 else None]
    if not text or len(text) > 4 or text.strip(digits) or (base == 10 and text != str(int(text))):
        raise ValueError(f"{text!r} is not a part of an address")
    number = int(text, base)
    if number > greatest:
        raise ValueError(f"{text!r} is more than {greatest}")
    return number


def _fit(parts: tuple[int, ...], ranges: tuple[_Range, ...]) -> bool:
    if len(parts) != len(ranges):
        return False
    for part, (low, high) in zip(parts, ranges, strict=True):  # noqa: SIM110 - a generator takes twice as long
        if not low <= part <= high:
            return False
    return True


@functools.lru_cache(maxsize=4096)  # the peers of a busy server, asked about for every request
def _parts(host: str) -> tuple[int, ...] | None:
    """The numbers of an address: 4 for IPv4, also within IPv6, 8 for IPv6."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            packed = address.packed
            return tuple(packed[at] << 8 | packed[at + 1] for at in range(0, 16, 2))
        address = address.ipv4_mapped
    return tuple(address.packed)
