"""messageDelayLevel: the text that says how long each delay level is (ScheduleMessageService.parseDelayLevel)."""

from __future__ import annotations

import functools
import re

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
#: A delayed message's level is its queue of SCHEDULE_TOPIC_XXXX.
MAX_DELAY_LEVELS = 1024
#: Ten years: a time stamp and a delay together stay far from int64's end.
MAX_DELAY_MS = 3650 * 86_400_000


@functools.lru_cache  # each settings object is made of a few texts
def parse_delay_levels(text: str) -> tuple[int, ...]:
    """The levels of "1s 5s ... 2h" in ms, level 1 first. Units are s, m, h and d.

    Raises `ValueError` naming the level that is wrong, where RocketMQ goes on with the levels before it.
    """
    levels = []
    for number, word in enumerate(text.split(), 1):
        match = re.fullmatch(r"(\d{1,10})([smhd])", word, re.ASCII)
        if match is None:
            raise ValueError(f"messageDelayLevel: level {number} is {word!r}, not a number and one of s, m, h, d")
        delay_ms = int(match[1]) * _UNITS_MS[match[2]]
        if delay_ms > MAX_DELAY_MS:
            raise ValueError(f"messageDelayLevel: level {number} is {word!r}, at most 3650d are allowed")
        levels.append(delay_ms)
    if not 1 <= len(levels) <= MAX_DELAY_LEVELS:
        raise ValueError(f"messageDelayLevel has {len(levels)} levels: 1 to {MAX_DELAY_LEVELS} are allowed")
    return tuple(levels)
