"""Asks a master about its log with the requests of RocketMQ's tools, which Java's answers and this project's.

A record by VIEW_MESSAGE_BY_ID, where the log begins and ends by GET_BROKER_RUNTIME_INFO.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from rmq_actors.broker.peer_states import TIMEOUT_MS, PeerStates, ask_broker
from rmq_actors.ha.master_record_lookup import LookupFailed
from rmq_actors.protocols.evidence import Peer
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.connection import RemotingBadFrameError
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.routes import KVTable
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.messages import ViewMessageRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_MIN_OFFSET, _MAX_OFFSET = "commitLogMinOffset", "commitLogMaxOffset"
_RANGE = {_MIN_OFFSET, _MAX_OFFSET}
#: A key that Java's runtime info lacks. A master that has it sends an empty log everything, and only what is synced.
_OF_THIS_PROJECT = "haListenAddress"
#: Where a record names its own offset.
_PHYSICAL_OFFSET = slice(28, 36)
#: How QueryMessageProcessor's remark begins; SYSTEM_ERROR is also what every failure is answered with.
_NOT_FOUND = "can not find message by the offset"
#: Java takes what stands at an offset for a record's size, and fails in the middle of a record if it cannot be one.
_NO_SIZE, _BY_BUFFER = "java.lang.IllegalArgumentException", "java.nio.Buffer."


@attrs.frozen(eq=False)
class MasterRecords:
    """A `MasterLogLookup`."""

    _client: RemotingClient
    #: Where the master answers, "host:port"; None while no name server has told.
    _master_addr: Callable[[], str | None]

    async def peer(self) -> Peer | None:
        """See `PeerLookup.peer`."""
        return await PeerStates(self._client).ask(self._master())

    async def log_range(self) -> tuple[int, int] | None:
        """See `MasterLogLookup.log_range`."""
        told = await self._runtime_info()
        if _OF_THIS_PROJECT in told or not _RANGE.issubset(told):
            return None
        return self._offset(told, _MIN_OFFSET), self._offset(told, _MAX_OFFSET)

    async def min_offset(self) -> int | None:
        """See `MasterLogLookup.min_offset`."""
        told = await self._runtime_info()
        return self._offset(told, _MIN_OFFSET) if _MIN_OFFSET in told else None

    async def _runtime_info(self) -> Mapping[str, str]:
        """Empty if the master does not know the request. Raises `LookupFailed`."""
        response = await self._ask(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return {}
        if response.code != ResponseCode.SUCCESS:
            raise LookupFailed(f"{self._master_addr()} answers {response.code}: {response.remark}")
        try:
            return decode_body(KVTable, response.body).table
        except ValueError as error:
            raise LookupFailed(f"{self._master_addr()}: {error}") from error

    def _offset(self, told: Mapping[str, str], key: str) -> int:
        try:
            return int(told[key])
        except ValueError as error:
            raise LookupFailed(f"{self._master_addr()}: {key}: {error}") from error

    async def record_at(self, offset: int) -> bytes | None:
        """See `MasterRecordLookup.record_at`."""
        response = await self._view_message(offset)
        if response is None:
            return b""
        if response.code == ResponseCode.SUCCESS:
            # Where RocketMQ has deleted the file of offset 0, it answers with the first record that it has.
            is_another = offset == 0 and any(response.body[_PHYSICAL_OFFSET])
            return None if is_another else response.body
        remark = response.remark or ""
        if response.code == ResponseCode.SYSTEM_ERROR and remark.startswith(_NOT_FOUND):
            return None
        if response.code == ResponseCode.SYSTEM_ERROR and remark.startswith(_NO_SIZE) and _BY_BUFFER in remark:
            return b""
        raise LookupFailed(f"{self._master_addr()} answers {response.code}: {response.remark}")

    async def _view_message(self, offset: int) -> RemotingCommand | None:
        """The answer; None if it is longer than any record can be.

        In the middle of a record Java sends as many bytes as it takes for the size, up to a whole file. Asked twice:
        others use the connection too, and the frame that broke it may have been for them.
        """
        header = encode_header(ViewMessageRequestHeader(offset))
        for _ in range(2):
            try:
                return await self._ask(RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields=header))
            except LookupFailed as error:
                if not isinstance(error.__cause__, RemotingBadFrameError):
                    raise
        return None

    async def _ask(self, request: RemotingCommand) -> RemotingCommand:
        return await ask_broker(self._client, self._master(), request, TIMEOUT_MS)

    def _master(self) -> str:
        master = self._master_addr()
        if master is None:
            raise LookupFailed("no name server has told where the master answers")
        return master
