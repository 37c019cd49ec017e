"""Finds which key was meant by an unknown one: `brokerRol=SLAVE` must not start a master."""

from __future__ import annotations

import difflib
from collections.abc import Collection

#: How alike two texts must be, from 0 to 1 as difflib counts: one letter too many or too few, or two that changed
#: places, in the shortest key; two such mistakes in a longer one.
_ALIKE = 0.85
#: No key with mistakes in it is longer.
_KEY_MAX_CHARS = 60


def meant_key(key: str, known: Collection[str]) -> str | None:
    """The one of `known` that `key` resembles most, apart from case, hyphens and underscores; None if there is none.

    Call it for keys that are neither known nor RocketMQ's own.
    """
    if len(key) > _KEY_MAX_CHARS:
        return None
    plain = {_plain(each): each for each in known}
    alike = difflib.get_close_matches(_plain(key), plain, n=1, cutoff=_ALIKE)
    return plain[alike[0]] if alike else None


def _plain(key: str) -> str:
    return key.lower().replace("_", "").replace("-", "")
