"""Errands of producers that send in transactions: when they are asked, and what is committed."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from rmq_actors.protocols.transactional_messages import PROPERTY_PRODUCER_GROUP, PROPERTY_TRANSACTION_PREPARED
from rmq_actors.testing.brokers import CHECK_INTERVAL_MS, CHECK_MAX, TIME_OUT_MS
from rmq_actors.testing.errand import AT_ONCE_S, Errand, GivenUp, Visitor, check
from rmq_actors.testing.thin_client import Prepared
from rmq_actors.wire.headers.messages import SendMessageResponseHeader
from rmq_actors.wire.message_id import decode_message_id
from rmq_actors.wire.record import TRANSACTION_COMMIT_TYPE, TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE
from rmq_actors.wire.response_code import ResponseCode

#: When a producer has been asked at the latest: its time is up, a round comes, and a clock may have gone back a little.
_ASKED_S = (TIME_OUT_MS + 2 * CHECK_INTERVAL_MS) / 1000 + 2
#: So long nobody is there, and no check may count: more rounds than there may be checks.
_NOBODY_S = (TIME_OUT_MS + (CHECK_MAX + 3) * CHECK_INTERVAL_MS) / 1000
_COMMIT, _ROLL_BACK = TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE


async def asked_in_time(errand: Errand) -> str:
    """A producer that says nothing is asked, in time, and what it commits then is one message."""
    async with errand.visitor() as producer:
        await _join(errand, producer)
        half = await _prepare(errand, producer)
        if not await _is_asked(producer):
            return f"{_ASKED_S:g} s after the half message at {half.offset} its producer was not asked about it"
        check(await producer.client.end(producer.asked[-1], _COMMIT, errand.group))
        return await _one_message(errand, producer)


async def asked_once_somebody_is_there(errand: Errand) -> str:
    """While no producer of the group is connected a half message waits, and no check counts."""
    async with errand.visitor() as producer:
        half = await _prepare(errand, producer)
        await trio.sleep(_NOBODY_S)
        await _join(errand, producer)
        if not await _is_asked(producer):
            return f"a producer that came {_NOBODY_S:g} s late was not asked about the half message at {half.offset}"
        check(await producer.client.end(producer.asked[-1], _COMMIT, errand.group))
        return await _one_message(errand, producer)


async def commit_crosses_a_check(errand: Errand) -> str:
    """It names the half message as it was before the check: it is committed, and asked about no more."""
    async with errand.visitor() as producer:
        await _join(errand, producer)
        half = await _prepare(errand, producer)
        if not await _is_asked(producer):
            raise GivenUp
        check(await producer.client.end(half, _COMMIT, errand.group))
        await producer.client.end(producer.asked[0], _COMMIT, errand.group)
        await trio.sleep(0.1)  # what was asked before it was committed has come
        questions = len(producer.asked)
        if await producer.wait(lambda: len(producer.asked) > questions, 3 * CHECK_INTERVAL_MS / 1000):
            return f"the half message at {half.offset} was committed, and is asked about"
        return await _one_message(errand, producer)


async def ends_at_once(errand: Errand) -> str:
    """A commit comes at once, and as often as a client sends it again: it is taken, and is one message."""
    async with errand.visitor() as producer:
        await _join(errand, producer)
        half = await _prepare(errand, producer)
        codes: list[int] = []

        async def end() -> None:
            codes.append((await producer.client.end(half, _COMMIT, errand.group)).code)

        async with trio.open_nursery() as nursery:
            for _ in range(1 + errand.below(3)):
                nursery.start_soon(end)
        if any(code != ResponseCode.SUCCESS for code in codes):
            return f"the commit of the half message at {half.offset}, just prepared, is answered {codes}"
        return await _one_message(errand, producer)


async def end_of_a_retried_send(errand: Errand) -> str:
    """Two half messages are one send, whose answer was lost: the end of one, which comes again, leaves the other."""
    async with errand.visitor() as producer:
        await _join(errand, producer)
        lost = await _prepare(errand, producer)
        half = await _prepare(errand, producer)
        for _ in range(3):
            check(await producer.client.end(half, _COMMIT, errand.group))
            await trio.sleep(errand.below(2) / 10)
        wrong = await _one_message(errand, producer)
        if wrong:
            return wrong
        if not await _is_asked(producer):
            return f"the half message at {lost.offset} is not asked about after an end of {half.offset}"
        check(await producer.client.end(producer.asked[-1], _ROLL_BACK, errand.group))
        return await _one_message(errand, producer)


async def _join(errand: Errand, producer: Visitor) -> None:
    check(await producer.client.heartbeat(producers=[errand.group]))


async def _prepare(errand: Errand, producer: Visitor) -> Prepared:
    key = f"errand-{errand.number}"
    properties = {
        "KEYS": key,
        "UNIQ_KEY": key,
        PROPERTY_TRANSACTION_PREPARED: "true",
        PROPERTY_PRODUCER_GROUP: errand.group,
    }
    code, sent = await producer.client.send(
        errand.topic,
        key.encode(),
        0,
        properties,
        sys_flag=TRANSACTION_PREPARED_TYPE,
        producer_group=errand.group,
        born_timestamp=errand.node.wall_clock.now_ms(),
    )
    if code != ResponseCode.SUCCESS or not isinstance(sent, SendMessageResponseHeader):
        raise GivenUp
    return Prepared(sent.queue_offset, decode_message_id(sent.msg_id)[1], key)


async def _is_asked(producer: Visitor) -> bool:
    return await producer.wait(lambda: bool(producer.asked), _ASKED_S)


async def _one_message(errand: Errand, producer: Visitor) -> str:
    found: Sequence[object] = (await errand.read(producer.client)).messages
    if len(found) != 1:
        return f"{AT_ONCE_S:g} s after a commit there are {len(found)} messages"
    return ""
