"""What a master's answers about a record mean: Java's own words, as 4.9.7 and 5.3.1 say them."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from rmq_actors.broker.master_records import MasterRecords
from rmq_actors.ha.master_record_lookup import LookupFailed, NoAnswer
from rmq_actors.remoting.connection import (
    RemotingBadFrameError,
    RemotingConnectError,
    RemotingError,
    RemotingSendRequestError,
    RemotingTimeoutError,
)
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.response_code import ResponseCode

_LIMIT = "java.base/java.nio.Buffer.createLimitException(Buffer.java:395)"
#: In the middle of a record stands what is no size: Java 17, 11 and 8.
NO_SIZE = [
    f"java.lang.IllegalArgumentException: newLimit < 0: (-129 < 0), {_LIMIT}",
    f"java.lang.IllegalArgumentException: newLimit > capacity: (2147483647 > 261844), {_LIMIT}",
    "java.lang.IllegalArgumentException, java.nio.Buffer.limit(Buffer.java:275)",
]


@attrs.define(eq=False)
class Client:
    """Answers each request alike; with `failures` the first ones by these."""

    code: int
    remark: str | None = None
    body: bytes = b""
    failures: list[Exception] = attrs.field(factory=list)

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        if self.failures:
            raise self.failures.pop(0)
        return command.response(self.code, self.remark, body=self.body)


async def record_at(client: Any) -> bytes | None:
    return await MasterRecords(client, lambda: "127.0.0.1:10911").record_at(100)


@pytest.mark.trio
async def test_a_record() -> None:
    assert await record_at(Client(ResponseCode.SUCCESS, body=b"record")) == b"record"


@pytest.mark.trio
@pytest.mark.parametrize(("physical_offset", "is_there"), [(0, True), (262_144, False)])
async def test_at_offset_0_java_gives_the_first_record_that_it_has(physical_offset: int, is_there: bool) -> None:
    """CommitLog.getMessage: "returnFirstOnNotFound". A slave would cut all of its log, which the master has deleted."""
    record = bytes(28) + physical_offset.to_bytes(8, "big") + b"the rest"
    client: Any = Client(ResponseCode.SUCCESS, body=record)
    found = await MasterRecords(client, lambda: "127.0.0.1:10911").record_at(0)
    assert found == (record if is_there else None)


@pytest.mark.trio
async def test_nothing_there() -> None:
    assert await record_at(Client(ResponseCode.SYSTEM_ERROR, "can not find message by the offset, 100")) is None


@pytest.mark.trio
@pytest.mark.parametrize("remark", NO_SIZE)
async def test_what_java_cannot_read_is_something_else_than_a_record(remark: str) -> None:
    """A failure would be tried again for a while, and then the master be followed over what it has."""
    assert await record_at(Client(ResponseCode.SYSTEM_ERROR, remark)) == b""


@pytest.mark.trio
@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.SYSTEM_ERROR, None),
        (ResponseCode.SYSTEM_ERROR, "java.lang.NullPointerException, org.apache.rocketmq.broker.X.y(X.java:1)"),
        (ResponseCode.SYSTEM_ERROR, "java.lang.IllegalArgumentException: no, org.apache.rocketmq.broker.X.y(X.java:1)"),
        (ResponseCode.SERVICE_NOT_AVAILABLE, "can not find message by the offset, 100"),
        (ResponseCode.NO_PERMISSION, "not for you"),
    ],
)
async def test_any_other_failure_tells_nothing(code: int, remark: str | None) -> None:
    with pytest.raises(LookupFailed, match=rf"127\.0\.0\.1:10911 answers {int(code)}: "):
        await record_at(Client(code, remark))


@pytest.mark.trio
@pytest.mark.parametrize(
    ("failure", "is_silence"),
    [
        (RemotingTimeoutError("no answer"), True),
        (RemotingConnectError("not connected", timed_out=True), True),
        (RemotingConnectError("ConnectionRefusedError"), False),
        (RemotingSendRequestError("the connection ended"), False),
    ],
)
async def test_silence_is_told_from_a_refusal(failure: RemotingError, is_silence: bool) -> None:
    with pytest.raises(LookupFailed) as caught:
        await record_at(Client(ResponseCode.SUCCESS, failures=[failure]))
    assert isinstance(caught.value, NoAnswer) is is_silence


@pytest.mark.trio
async def test_an_answer_that_is_longer_than_any_record_is_something_else() -> None:
    """In the middle of a record: four blanks of a text are half a GiB, and so much of the file comes, if it can."""
    bad_frame = RemotingBadFrameError("the connection ended")
    assert await record_at(Client(ResponseCode.SUCCESS, body=b"record", failures=[bad_frame, bad_frame])) == b""
    # Another request may have ended the connection that it shares.
    assert await record_at(Client(ResponseCode.SUCCESS, body=b"record", failures=[bad_frame])) == b"record"
    with pytest.raises(LookupFailed):
        await record_at(Client(ResponseCode.SUCCESS, failures=[RemotingSendRequestError("the connection ended")]))


@pytest.mark.trio
async def test_a_range_that_does_not_come_is_a_failure() -> None:
    client: Any = Client(ResponseCode.SUCCESS, failures=[RemotingBadFrameError("the connection ended")])
    with pytest.raises(LookupFailed):
        await MasterRecords(client, lambda: "127.0.0.1:10911").log_range()
