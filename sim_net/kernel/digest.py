"""The running digest of a world: what two runs of one seed must agree on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim_net.kernel.kernel import Kernel

_FLUSH_PIECES = 4096


class Digest:
    """A blake2b over the pieces given so far, hashed in batches because a piece is a task step and those are many.

    What may be added has a name each, although it all goes the same way here: `search.compare` tells them apart.
    """

    __slots__ = ("_hash", "_pieces", "add", "add_step", "add_steps", "add_time")

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._pieces: list[bytes] = []
        #: Take one piece in. A bound `list.append`: this is the hottest call of a run.
        self.add: Callable[[bytes], object] = self._pieces.append
        #: Take in that a task, by its token, is about to run.
        self.add_step: Callable[[bytes], object] = self._pieces.append
        #: The same for several tasks, the last one first.
        self.add_steps: Callable[[list[bytes]], object] = self._pieces.extend
        #: Take in a new virtual time: a double, little-endian.
        self.add_time: Callable[[bytes], object] = self._pieces.append

    def flush_when_full(self) -> None:
        """Hash what was added once there is a batch of it; called where time moves, to bound memory."""
        if len(self._pieces) >= _FLUSH_PIECES:
            self._flush()

    def mix(self, data: bytes) -> None:
        """Take in `data` of any length; its length goes in too, so that neighbours cannot be confused."""
        self.add(len(data).to_bytes(4, "little"))
        self.add(data)

    def hexdigest(self) -> str:
        """32 hex digits over all that was added; more may be added afterwards."""
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        self._hash.update(b"".join(self._pieces))
        self._pieces.clear()


#: Makes the digest of each new world.
digest_factory: ContextVar[Callable[[Kernel], Digest]] = ContextVar(
    "sim_net.digest_factory", default=lambda _: Digest()
)
