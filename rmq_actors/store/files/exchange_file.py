"""A master's note of an exchange of roles (config/roleExchange.json): a broker that starts with one goes on, fenced.

Not RocketMQ's. `protocols.exchange` says when it is written and removed.
"""

from __future__ import annotations

import contextlib

import attrs

from rmq_actors.ports.disk import Disk
from rmq_actors.protocols.exchange import Note, Partner
from rmq_actors.protocols.term import TERM_MAX
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.files.json_file import ConfigFileDamaged, JsonFile
from rmq_actors.store.files.layout import CONFIG_DIRECTORY, EXCHANGE_FILE
from rmq_actors.wire.address import parse_address
from rmq_actors.wire.fastjson import JsonValue

#: More is not read.
MAX_BYTES = 4096
#: What a person can do where no start takes the file.
REMEDY = (
    "it says with which broker this one was exchanging roles. If that one is the master by now, start this one as its"
    " slave, without the file and its .bak"
)
_TEXTS = ("promotion", "role", "slaveAddr", "slaveHaAddr")
_NUMBERS = ("end", "slaveId", "term")


def decode_note(value: JsonValue) -> Note:
    """Raises `ValueError`."""
    if not isinstance(value, dict) or value.keys() != {*_TEXTS, *_NUMBERS}:
        raise ValueError(f"it lacks one of {', '.join(sorted((*_TEXTS, *_NUMBERS)))}")
    texts = [text for text in map(value.__getitem__, _TEXTS) if isinstance(text, str)]
    numbers = [
        number
        for number in map(value.__getitem__, _NUMBERS)
        if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= TERM_MAX
    ]
    if len(texts) < len(_TEXTS) or len(numbers) < len(_NUMBERS):
        raise ValueError(f"{', '.join(_TEXTS)} are texts, {', '.join(_NUMBERS)} numbers from 0 on")
    promotion, role, address, ha_address = texts
    end, broker_id, term = numbers
    for each in (address, ha_address):
        parse_address(each)
    if BrokerRole(role) is BrokerRole.SLAVE:
        raise ValueError("a slave is not promoted to a slave")
    return Note(promotion, Partner(address, ha_address, broker_id), term, end, role)


@attrs.define(eq=False, repr=False)
class ExchangeFile:
    """`note` is durable, or there is none."""

    note: Note | None
    _file: JsonFile
    _disk: Disk

    @classmethod
    def load(cls, disk: Disk) -> ExchangeFile:
        """Read the file. Raises `ConfigFileDamaged`."""
        file = JsonFile(disk, EXCHANGE_FILE, MAX_BYTES)
        try:
            return cls(file.load(decode_note).value, file, disk)
        except ConfigFileDamaged as error:
            raise ConfigFileDamaged(f"{error}: {REMEDY}") from error

    async def write(self, note: Note) -> None:
        """Write the note durably. Raises `OSError`: the next start may find it or not. A checkpoint."""
        partner = note.partner
        await self._file.persist(
            {
                "end": note.end,
                "promotion": note.promotion,
                "role": note.role,
                "slaveAddr": partner.address,
                "slaveHaAddr": partner.ha_address,
                "slaveId": partner.broker_id,
                "term": note.term,
            }
        )
        self.note = note

    async def remove(self) -> None:
        """Remove the note durably, which needs no room on the disk. Raises `OSError`. A checkpoint."""
        # The .bak first: without the file a start would read it.
        for path in (f"{EXCHANGE_FILE}.bak", EXCHANGE_FILE):
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(path)
        await self._disk.sync_directory(CONFIG_DIRECTORY)
        self.note = None
