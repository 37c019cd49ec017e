"""Seeded randomness: one generator a purpose, each derived from the world's seed and a name.

Separate generators keep one consumer from shifting another's draws: a node that asks for one more jitter does not
change the latency of every later packet.
"""

from __future__ import annotations

import hashlib
import random


def derive(seed: int, name: str) -> random.Random:
    """A generator for `name`, the same in every process for the same `seed` and `name`."""
    digest = hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=16).digest()
    return random.Random(int.from_bytes(digest, "big"))


class SimEntropy:
    """A node's randomness. It goes on over restarts: a new incarnation does not repeat the old one's identifiers."""

    def __init__(self, seed: int, name: str) -> None:
        self._random = derive(seed, f"entropy/{name}")
        self.random = self._random.random

    def token_bytes(self, size: int) -> bytes:
        """`size` random bytes."""
        return self._random.randbytes(size)
