"""Which operations of a disk go wrong: the n-th that matches, or each, until the fault is over."""

from __future__ import annotations

import errno
from typing import Final, Literal, get_args

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
