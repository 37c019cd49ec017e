"""Asks a master for single records by VIEW_MESSAGE_BY_ID, as RocketMQ's tools do, Java's and this project's alike."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from rmq_actors.ha.master_record_lookup import LookupFailed
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.wire.address import IllegalAddress
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.messages import ViewMessageRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

TIMEOUT_MS = 3_000
#: How QueryMessageProcessor's remark begins; SYSTEM_ERROR is also what every failure is answered with.
_NOT_FOUND = "can not find message by the offset"


@attrs.frozen(eq=False)
class MasterRecords:
    """A `MasterRecordLookup`."""

    _client: RemotingClient
    #: Where the master answers, "host:port"; None while no name server has told.
    _master_addr: Callable[[], str | None]

    async def record_at(self, offset: int) -> bytes | None:
        """See `MasterRecordLookup.record_at`."""
        master = self._master_addr()
        if master is None:
            raise LookupFailed("no name server has told where the master answers")
        request = RemotingCommand(
            RequestCode.VIEW_MESSAGE_BY_ID, ext_fields=encode_header(ViewMessageRequestHeader(offset))
        )
        try:
            response = await self._client.invoke(master, request, TIMEOUT_MS)
        except (RemotingError, IllegalAddress) as error:
            raise LookupFailed(f"{master}: {error}") from error
        if response.code == ResponseCode.SUCCESS:
            return response.body
        if response.code == ResponseCode.SYSTEM_ERROR and (response.remark or "").startswith(_NOT_FOUND):
            return None
        raise LookupFailed(f"{master} answers {response.code}: {response.remark}")
