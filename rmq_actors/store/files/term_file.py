"""The file of the term (config/replicationTerm.json): what `protocols.term` decides, kept with the store.

Not RocketMQ's. Unlike its tables the term is never taken from the `.bak` where the file is there and cannot be read: an
older term would make a broker trust a master that was replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs
import trio

from rmq_actors.ports.disk import Disk
from rmq_actors.protocols.term import Term
from rmq_actors.store.files.json_file import ConfigFileDamaged, JsonFile
from rmq_actors.store.files.layout import TERM_FILE
from rmq_actors.tracing.events.store import StoreTerm
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.fastjson import JsonValue

_log = logging.getLogger(__name__)

#: The file holds two values.
MAX_BYTES = 4096
#: What a person can do where no start takes the file.
REMEDY = (
    "the file holds the term of replication, and an older one would do harm: where another broker of this name is the"
    " master, remove the file and its .bak, and start this one as its slave"
)


def decode_term(value: JsonValue) -> Term:
    """Raises `ValueError`."""
    if not isinstance(value, dict) or value.keys() != {"leads", "resigned", "term"}:
        raise ValueError('there is not {"leads": ..., "resigned": ..., "term": ...} in it')
    number, leads, resigned = value["term"], value["leads"], value["resigned"]
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"term {number!r} is no integer")  # noqa: TRY004 - bad input
    if not isinstance(leads, bool) or not isinstance(resigned, bool):
        raise ValueError(f"leads {leads!r} or resigned {resigned!r} is neither true nor false")  # noqa: TRY004 - bad input
    return Term(number, leads, resigned)


def load_term(disk: Disk, *, quietly: bool = False) -> Term:
    """The term that the file on a disk has; 0 where there is none. Raises `ConfigFileDamaged`."""
    return _load(disk, quietly=quietly)[1]


def _load(disk: Disk, *, quietly: bool = False) -> tuple[JsonFile, Term]:
    file = JsonFile(disk, TERM_FILE, MAX_BYTES)
    is_there = disk.exists(TERM_FILE)
    try:
        loaded = file.load(decode_term, quietly=quietly)
    except ConfigFileDamaged as error:
        raise ConfigFileDamaged(f"{error}; {REMEDY}") from error
    if is_there and loaded.source != "file":
        raise ConfigFileDamaged(f"{loaded.reason}; {REMEDY}")
    return file, loaded.value or Term()


@attrs.define(eq=False, repr=False)
class TermFile:
    """`term` is durable; who changes it waits for that."""

    term: Term
    _file: JsonFile
    _tracer: Tracer
    _changing: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    @classmethod
    def load(cls, disk: Disk, tracer: Tracer) -> TermFile:
        """Read the file; where there is none the term is 0. Raises `ConfigFileDamaged`."""
        file, term = _load(disk)
        return cls(term, file, tracer)

    async def promote(self, asked: int | None = None) -> None:
        """Lead a greater term than every one seen, at least `asked`, from now on. Raises `OSError`, `TermRefused`."""
        await self._change(lambda term: term.promoted(asked), "promoted")

    async def check_writable(self) -> None:
        """Raises `OSError` where another term could not be written. A checkpoint."""
        await self._file.check_writable()

    async def give_up(self) -> None:
        """Be a slave in the present term. Raises `OSError`."""
        await self._change(Term.given_up, "resigned")

    async def see(self, number: int) -> None:
        """Take over the term of a broker that is followed, if it is greater. Raises `OSError`."""
        await self._change(lambda term: term.seen(number), "adopted")

    async def _change(self, change: Callable[[Term], Term], status: str) -> None:
        async with self._changing:
            term = change(self.term)
            if term == self.term:
                return
            with trio.CancelScope(shield=True):  # else the file might have a term that nobody here knows of
                await self._file.persist({"leads": term.leads, "resigned": term.resigned, "term": term.number})
            _log.info("the term of replication is %s (it was %s)", term, self.term)
            self.term = term
            self._tracer.emit(StoreTerm(status=status, term=term.number, leads=term.leads))
