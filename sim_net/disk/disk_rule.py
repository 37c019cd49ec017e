"""Which operations of a disk go wrong: the n-th that matches, or each, until the fault is over."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final, Literal, get_args

from sim_net.disk.page_cache import SECTOR_BYTES

Operation = Literal["open", "write", "sync", "truncate", "rename", "remove", "remove_directory", "sync_directory"]

OPERATIONS: Final[tuple[str, ...]] = get_args(Operation)


class DiskRule:
    """Hits the `nth` operation that matches, then every `every`-th after it, `count` times; for ever if that is None.

    An operation matches by its name (any, if None) and if its path contains `path`. `error` is the errno that it gets;
    None misdirects a write.
    """

    def __init__(
        self, error: int | None, operation: Operation | None, path: str, nth: int, every: int, count: int | None
    ) -> None:
        if operation is not None and operation not in OPERATIONS:
            raise ValueError(f"no disk operation is called {operation!r}; there are {', '.join(OPERATIONS)}")
        if error is not None and error not in errno.errorcode:
            raise ValueError(f"error must be an errno, not {error!r}")
        for name, value in (("nth", nth), ("every", every), ("count", count)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value!r}")
        self.error = error
        #: How many operations it has hit.
        self.hits = 0
        self._operation = operation
        self._path = path
        self._until_next = nth
        self._every = every
        self._left = count

    @property
    def is_over(self) -> bool:
        """Whether it has hit all that it was to hit."""
        return self._left == 0

    def end(self) -> None:
        """Hit nothing any more."""
        self._left = 0

    def hit(self, operation: str, path: str) -> bool:
        """Count an operation, if it matches, and say whether it is hit."""
        if self._left == 0 or self._operation not in (None, operation) or self._path not in path:
            return False
        self._until_next -= 1
        if self._until_next:
            return False
        self._until_next = self._every
        self.hits += 1
        if self._left is not None:
            self._left -= 1
        return True


class DiskRules:
    """The rules of one disk, oldest first, and where a misdirected write lands."""

    def __init__(self, randrange: Callable[[int], int]) -> None:
        self._rules: list[DiskRule] = []
        self._randrange = randrange

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._rules)

    def add(self, rule: DiskRule) -> DiskRule:
        """Let a rule hit operations from now on."""
        self._rules.append(rule)
        return rule

    def hit(self, operation: Operation, path: str) -> DiskRule | None:
        """The oldest rule that an operation falls under; the others do not see it."""
        if not self._rules:
            return None
        self._rules = [rule for rule in self._rules if not rule.is_over]
        return next((rule for rule in self._rules if rule.hit(operation, path)), None)

    def clear(self) -> None:
        """No rule hits any more."""
        self._rules.clear()

    def misdirected(self, file_bytes: int, offset: int, size: int) -> int:
        """Another place for a write in a file, sectors away; the same if there is none."""
        first = offset % SECTOR_BYTES
        places = (file_bytes - size - first) // SECTOR_BYTES + 1
        own = (offset - first) // SECTOR_BYTES
        others = places - (own < places)
        if others <= 0:
            return offset
        drawn = self._randrange(others)
        return first + SECTOR_BYTES * (drawn + (drawn >= own))
