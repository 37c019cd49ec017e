"""The machine's randomness."""

from __future__ import annotations

import os
import random

import attrs


@attrs.frozen
class SystemEntropy:
    """`ports.Entropy` by the operating system."""

    _random: random.SystemRandom = attrs.field(factory=random.SystemRandom, init=False)

    def random(self) -> float:
        """A float in [0, 1)."""
        return self._random.random()

    def token_bytes(self, size: int) -> bytes:
        """`size` random bytes."""
        return os.urandom(size)
