"""How far each group is behind the end of the log in bytes, by its last pull of each queue (GROUP_GET_FALL_SIZE).

    a pull of G in T, queue 3:   the last record that was looked at ......... the log's end
                                                        `behind_bytes`

A group that is far behind reads old files from the disk, which costs everybody's puts and pulls. Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import attrs

#: What comes after that is not noted until something is forgotten.
QUEUES_MAX = 200_000


class Lag(NamedTuple):
    """The queue in which a group is behind."""

    topic: str
    queue_id: int
    behind_bytes: int


@attrs.define(eq=False, repr=False)
class SlowConsumers:
    """The lag of each group in each queue, as its last pull there has shown it."""

    _lags: dict[str, dict[tuple[str, int], int]] = attrs.field(factory=dict, init=False)
    _queues: int = attrs.field(default=0, init=False)

    def pulled(self, group: str, topic: str, queue_id: int, behind_bytes: int) -> bool:
        """A pull has looked at messages (recordDiskFallBehindSize); whether there is room to note it."""
        lags, queue = self._lags.get(group), (topic, queue_id)
        if lags is None or queue not in lags:
            if self._queues >= QUEUES_MAX:
                return False
            self._queues += 1
            lags = self._lags.setdefault(group, {})
        lags[queue] = behind_bytes
        return True

    def behind_bytes(self, group: str, topic: str, queue_id: int) -> int:
        """The lag of a group in a queue; 0 if none is noted."""
        return self._lags.get(group, {}).get((topic, queue_id), 0)

    def slower_than(self, threshold_bytes: int) -> dict[str, Lag]:
        """The groups that are further behind than that in some queue, each with the queue where it is furthest."""
        found = {}
        for group, lags in self._lags.items():
            (topic, queue_id), behind_bytes = max(lags.items(), key=lambda item: item[1])
            if behind_bytes > threshold_bytes:
                found[group] = Lag(topic, queue_id, behind_bytes)
        return found

    def forget(self, group: str) -> None:
        """What was noted of a group says nothing any more."""
        self._queues -= len(self._lags.pop(group, ()))

    def forget_topics(self, topics: Collection[str]) -> None:
        """Topics are deleted: nobody is behind in them."""
        for group, lags in list(self._lags.items()):
            left = {queue: behind_bytes for queue, behind_bytes in lags.items() if queue[0] not in topics}
            self._queues -= len(lags) - len(left)
            self._lags[group] = left
            if not left:
                del self._lags[group]

    def forget_all(self) -> None:
        """What was noted says nothing any more."""
        self._lags.clear()
        self._queues = 0
