"""Which key was meant by one that nobody knows: `brokerRol=SLAVE` must not start a master."""

from __future__ import annotations

import difflib
from collections.abc import Collection

#: Of 1, as difflib counts what two texts have in common: one letter too many, too few, or two that changed places, in
#: the shortest key; two in a longer one.
_ALIKE = 0.85
#: Longer than any key with mistakes in it.
_KEY_MAX_CHARS = 60


def meant_key(key: str, known: Collection[str]) -> str | None:
    """The one of `known` that `key` resembles most, whatever its case, hyphens and underscores; None: there is none.

    Asked of keys that are neither known nor RocketMQ's own.
    """
    if len(key) > _KEY_MAX_CHARS:
        return None
    plain = {_plain(each): each for each in known}
    alike = difflib.get_close_matches(_plain(key), plain, n=1, cutoff=_ALIKE)
    return plain[alike[0]] if alike else None


def _plain(key: str) -> str:
    return key.lower().replace("_", "").replace("-", "")
