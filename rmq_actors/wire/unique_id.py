"""Ids that a producer gives its messages (MessageClientIDSetter), so that one is found that no broker has answered for.

    ip (4 or 16) | process (2) | class loader (4) | ms since the month began (4) | counter (2)

in upper-case hex. RocketMQ's tools read the address and the time out of an id; this side has no class loader, so those
bytes, like the process, are random.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

import attrs

_DAY_MS = 86_400_000
#: A clock that was set back by less than this counts as standing still, as in RocketMQ.
_SET_BACK_MS = 1_000_000


def month_began_ms(now_ms: int, utc_offset_s: int) -> int:
    """When the month of `now_ms` began in local time, in ms since the epoch."""
    local_days = (now_ms + utc_offset_s * 1000) // _DAY_MS
    # Days within an era of 400 years whose years begin in March: a month is then a plain fraction of 153 days.
    day_of_era = (local_days + 719_468) % 146_097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day_of_month = day_of_year - (153 * month + 2) // 5
    return (local_days - day_of_month) * _DAY_MS - utc_offset_s * 1000


@attrs.define(eq=False, repr=False, on_setattr=attrs.setters.NO_OP)  # else each step of the counter would run hooks
class UniqueIds:
    """The ids of one producer: 65,536 different ones in each ms. `token`: 6 random bytes."""

    ip: str
    token: bytes = attrs.field(validator=[attrs.validators.min_len(6), attrs.validators.max_len(6)])
    _prefix: str = attrs.field(init=False)
    _counter: int = attrs.field(default=0, init=False)
    _began_ms: int = attrs.field(default=0, init=False)
    _next_check_ms: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._prefix = (ipaddress.ip_address(self.ip).packed + self.token).hex().upper()

    def next(self, now_ms: int, utc_offset_s: Callable[[int], int]) -> str:
        """Another id. `utc_offset_s`: how many seconds local time is ahead of UTC at a time in ms."""
        if now_ms >= self._next_check_ms:
            self._began_ms = month_began_ms(now_ms, utc_offset_s(now_ms))
            self._next_check_ms = now_ms - now_ms % _DAY_MS + _DAY_MS
        since_ms = now_ms - self._began_ms
        if -_SET_BACK_MS < since_ms < 0:
            since_ms = 0
        counter, self._counter = self._counter, (self._counter + 1) & 0xFFFF
        # The field has 32 bits, and Java's cast keeps the lowest.
        return f"{self._prefix}{since_ms & 0xFFFFFFFF:08X}{counter:04X}"
