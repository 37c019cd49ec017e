"""Where in the log the present life of each topic begins: config/deletedTopics.json.

A topic's queues are derived from the log, and the log keeps the records of a topic that was deleted. So a recovery
would bring its queues back. This table says from which offset on the log's records of a topic count:

    log    ...T T T...........T T...     deletedTopics  {"T": 4711}
                       |
                     4711: T was deleted here; what is before it is in no queue any more, what comes after begins at 0

Offsets of the log are the same on every broker of a name, so a slave takes them over as they are. RocketMQ does not
read the file. An entry goes once the log begins after it. See docs/decisions/0021.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

import attrs
import trio

from rmq_actors.ports.disk import Disk
from rmq_actors.store.files.json_file import JsonFile
from rmq_actors.store.files.layout import DELETED_TOPICS_FILE
from rmq_actors.wire.fastjson import JsonInput, parse_fastjson

_log = logging.getLogger(__name__)

_POINTS, _DELETING = "points", "deleting"
#: Stands for every queue of a topic, beside the ids of single ones.
_ALL = "*"

#: By queue id, None for every queue of the topic: the offset before which its records do not count.
QueuePoints = Mapping[int | None, int]
Points = Mapping[str, QueuePoints]


class QueueBeginsAgain(Exception):
    """A record is number 0 of a queue that has entries: its topic was deleted before it, on the master that wrote it.

    Nothing of the record was dispatched. Make `offset` the queue's point, and dispatch again.
    """

    def __init__(self, topic: str, queue_id: int, offset: int) -> None:
        super().__init__(f"{topic}-{queue_id} begins again at log offset {offset}")
        self.topic, self.queue_id, self.offset = topic, queue_id, offset


def decode_points(value: object) -> dict[str, dict[int | None, int]]:
    """The table of `encode_points`. Raises `ValueError`."""
    if not isinstance(value, dict):
        raise ValueError(f"{_POINTS} is not a map")  # noqa: TRY004 - bad input, not a bad call
    points: dict[str, dict[int | None, int]] = {}
    for topic, queues in value.items():
        if not isinstance(queues, dict) or not isinstance(topic, str):
            raise ValueError(f"{_POINTS}: {topic} has no map of queues")  # noqa: TRY004 - bad input
        points[topic] = {}
        for name, offset in queues.items():
            if not isinstance(name, str):
                raise ValueError(f"{_POINTS}: {topic} has queue {name!r}")  # noqa: TRY004 - bad input
            if isinstance(offset, bool) or not isinstance(offset, int) or not 0 < offset < 1 << 63:
                raise ValueError(f"{_POINTS}: {topic} has offset {offset!r}")
            points[topic][None if name == _ALL else int(name)] = offset
    return points


def point_key(queue_id: int | None) -> str:
    """How a queue is named in JSON, or all of them."""
    return _ALL if queue_id is None else str(queue_id)


def encode_points(points: Points) -> JsonInput:
    """The table as JSON: {"topic": {"*": 4711, "3": 5000}}."""
    return {topic: {point_key(queue): offset for queue, offset in queues.items()} for topic, queues in points.items()}


def begin_of(queues: QueuePoints, queue_id: int) -> int:
    """The offset from which on the records of a queue count, by the points of its topic."""
    return max(queues.get(None, 0), queues.get(queue_id, 0))


@attrs.frozen
class _Content:
    points: dict[str, dict[int | None, int]]
    deleting: frozenset[str]


def decode_deleted_topics(data: memoryview) -> _Content:
    """The content of the file. Raises `ValueError`."""
    value = parse_fastjson(data)
    if isinstance(value, dict) and value.keys() == {_POINTS, _DELETING}:
        deleting = value[_DELETING]
        if isinstance(deleting, list):
            return _Content(decode_points(value[_POINTS]), frozenset(map(str, deleting)))
    raise ValueError(f'there is not {{"{_DELETING}": [...], "{_POINTS}": {{...}}}} in it')


@attrs.define(eq=False, repr=False)
class DeletedTopics:
    """What is in it is durable.

    `deleting`: topics whose deletion has begun and whose settings and offsets may still be there.
    """

    _file: JsonFile
    _content: _Content
    #: Records at this offset or after it are of the present life of whatever topic they have.
    newest: int = attrs.field(default=0, init=False)
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._find_newest()

    @classmethod
    def load(cls, disk: Disk, *, quietly: bool = False) -> DeletedTopics:
        """Read the file; where there is none, no topic was deleted. Raises `ConfigFileDamaged`."""
        file = JsonFile(disk, DELETED_TOPICS_FILE)
        content = file.load_text(decode_deleted_topics, quietly=quietly).value
        return cls(file, content or _Content({}, frozenset()))

    @classmethod
    def empty(cls, disk: Disk) -> DeletedTopics:
        """A table that says nothing, whatever the file says."""
        return cls(JsonFile(disk, DELETED_TOPICS_FILE), _Content({}, frozenset()))

    @property
    def points(self) -> Points:
        """The table. It is replaced, never changed."""
        return self._content.points

    @property
    def deleting(self) -> frozenset[str]:
        """See the class."""
        return self._content.deleting

    def begin_of(self, topic: str, queue_id: int) -> int:
        """The offset from which on the records of a queue count; 0 if all do."""
        queues = self._content.points.get(topic)
        return 0 if queues is None else begin_of(queues, queue_id)

    def hides(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether the record at `offset` is of a life of its topic that is over."""
        return offset < self.newest and offset < self.begin_of(topic, queue_id)

    async def change(self, change: Callable[[Points], Points], log_min_offset: int = 0) -> None:
        """Replace the table, without what speaks of records before `log_min_offset` alone; durable on return.

        Changes are made one after the other. Raises `OSError`, `ValueError` (too many topics): it is as it was then.
        """
        await self._change(change, lambda deleting: deleting, log_min_offset)

    async def begin(self, topics: Collection[str], offset: int, log_min_offset: int) -> None:
        """Let these topics begin at `offset`, and be `deleting`. As `change`."""
        added: Points = {topic: {None: offset} for topic in topics}
        await self._change(lambda points: {**points, **added}, lambda deleting: deleting | set(topics), log_min_offset)

    async def finish(self, topics: Collection[str]) -> None:
        """Nothing is left of these topics: they are not `deleting` any more. As `change`."""
        await self._change(lambda points: points, lambda deleting: deleting - set(topics), 0)

    async def raise_to(self, topic: str, queue_id: int, offset: int) -> None:
        """Let the records of a queue count from `offset` on at the earliest. As `change`."""

        def raised(points: Points) -> Points:
            queues = points.get(topic, {})
            return {**points, topic: {**queues, queue_id: max(offset, queues.get(queue_id, 0))}}

        await self.change(raised)

    async def lower_to(self, log_end: int) -> None:
        """Let no point be after the log's end, where another history goes on. As `change`."""
        if self.newest > log_end:
            _log.warning("topics were deleted at offset %d, the log ends at %d: they begin there", self.newest, log_end)
            await self.change(
                lambda points: {
                    topic: {queue: min(offset, log_end) for queue, offset in queues.items()}
                    for topic, queues in points.items()
                }
            )

    async def forget_from(self, log_end: int) -> None:
        """Forget the points after `log_end`: the log is cut there, and what comes is another history. As `change`."""
        await self.change(
            lambda points: {
                topic: {queue: offset for queue, offset in queues.items() if offset <= log_end}
                for topic, queues in points.items()
            }
        )

    async def clear(self) -> None:
        """Forget everything: the log is another one. As `change`."""
        await self._change(lambda _: {}, lambda _: frozenset(), 0)

    async def _change(
        self,
        change: Callable[[Points], Points],
        change_deleting: Callable[[frozenset[str]], frozenset[str]],
        log_min_offset: int,
    ) -> None:
        async with self._lock:
            points = {
                topic: {queue: offset for queue, offset in queues.items() if offset > log_min_offset}
                for topic, queues in change(self.points).items()
            }
            content = _Content(
                {topic: queues for topic, queues in points.items() if queues}, change_deleting(self.deleting)
            )
            if content == self._content:
                return
            value = {_POINTS: encode_points(content.points), _DELETING: sorted(content.deleting)}
            with trio.CancelScope(shield=True):  # else the file might have a point that nobody here knows of
                await self._file.persist(value)
            self._content = content
            self._find_newest()

    def _find_newest(self) -> None:
        points = self._content.points
        self.newest = max((offset for queues in points.values() for offset in queues.values()), default=0)
