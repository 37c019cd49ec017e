"""Randomness for jitter and identifiers; a simulated node's comes from the world's seed."""

from __future__ import annotations

from typing import Protocol


class Entropy(Protocol):
    """A source of randomness."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...

    def token_bytes(self, size: int) -> bytes:
        """`size` random bytes."""
        ...
