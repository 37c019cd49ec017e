"""Errands of producers that send in transactions: when they are asked, and what is committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import trio

from rmq_actors.protocols.transactional_messages import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_PREPARED,
)
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
#: For how long a producer says that it need not be asked: longer than another message waits, and the errand takes.
_IMMUNE_S = 120
_COMMIT, _ROLL_BACK = TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE


async def asked_in_time(errand: Errand) -> str:
    """A producer that says nothing is asked, in time, and what it commits then is one message."""
    async with errand.visitor() as producer:
        await join(errand, producer)
        half = await prepare(errand, producer)
        if not await is_asked(producer):
            return f"{_ASKED_S:g} s after the half message at {half.offset} its producer was not asked about it"
        check(await producer.client.end(producer.asked[-1], _COMMIT, errand.group))
        return await _one_message(errand, producer)


async def asked_once_somebody_is_there(errand: Errand) -> str:
    """While no producer of the group is connected a half message waits, and no check counts."""
    async with errand.visitor() as producer:
        half = await prepare(errand, producer)
        await trio.sleep(_NOBODY_S)
        await join(errand, producer)
        if not await is_asked(producer):
            return f"a producer that came {_NOBODY_S:g} s late was not asked about the half message at {half.offset}"
        check(await producer.client.end(producer.asked[-1], _COMMIT, errand.group))
        return await _one_message(errand, producer)


async def commit_crosses_a_check(errand: Errand) -> str:
    """It names the half message as it was before the check: it is committed, and asked about no more."""
    async with errand.visitor() as producer:
        await join(errand, producer)
        half = await prepare(errand, producer)
        if not await is_asked(producer):
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
        await join(errand, producer)
        half = await prepare(errand, producer)
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
        await join(errand, producer)
        lost = await prepare(errand, producer)
        half = await prepare(errand, producer)
        for _ in range(3):
            check(await producer.client.end(half, _COMMIT, errand.group))
            await trio.sleep(errand.below(2) / 10)
        wrong = await _one_message(errand, producer)
        if wrong:
            return wrong
        if not await is_asked(producer):
            return f"the half message at {lost.offset} is not asked about after an end of {half.offset}"
        check(await producer.client.end(producer.asked[-1], _ROLL_BACK, errand.group))
        return await _one_message(errand, producer)


async def halves_of_one_key(errand: Errand) -> str:
    """Each half message is a transaction of its own: keys repeat, in one topic and in several, or there are none.

    The first one is immune for a while, and waits as the second one is asked about, and ends.
    """
    elsewhere = f"{errand.topic}-2" if errand.below(2) else errand.topic
    of_both = {"UNIQ_KEY": f"errand-{errand.number}" if errand.below(4) else ""}
    counted = {PROPERTY_TRANSACTION_CHECK_TIMES: "1"} if errand.below(2) else {}  # it was consumed, and is sent on
    async with errand.visitor() as producer:
        await join(errand, producer)
        immune = {**of_both, PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS: f"{_IMMUNE_S}"}
        waits = await prepare(errand, producer, "waits", elsewhere, immune)
        half = await prepare(errand, producer, "asked", more={**of_both, **counted})
        if not await producer.wait(lambda: b"asked" in _asked_about(producer), _ASKED_S):
            return f"the half message at {half.offset}, which shares its key, is not asked about"
        if b"waits" in _asked_about(producer):
            raise GivenUp  # by the broker's clock its time is over
        check(await producer.client.end(producer.asked[-1], _COMMIT, errand.group))
        answer = await producer.client.end(waits, _COMMIT, errand.group)
        if answer.code == ResponseCode.SYSTEM_ERROR:
            return f"the half message at {waits.offset} waits, and is not committed: {answer.remark}"
        check(answer)
        wanted = {errand.topic: {b"asked"}, elsewhere: {b"waits"}}
        wanted = wanted if len(wanted) > 1 else {errand.topic: {b"asked", b"waits"}}
        for topic, bodies in wanted.items():
            found = (await errand.read(producer.client, topic, count=len(bodies))).bodies
            if sorted(found) != sorted(bodies):
                return f"of two half messages of one key {topic} has {found}, not {sorted(bodies)}"
        return ""


async def asked_as_it_was_sent(errand: Errand) -> str:
    """A question has the message of its producer, who may store it: body, topic, queue, and properties. WAIT is false.

    It is asked about without the checks' own counts and places, but for how often it was asked.
    """
    async with errand.visitor() as producer:
        await join(errand, producer)
        sent = {"WAIT": "true", "TAGS": "T", "own": f"{errand.below(100)}"}
        half = await prepare(errand, producer, more=sent)
        if not await is_asked(producer):
            raise GivenUp
        question = producer.questions[-1]
        check(await producer.client.end(producer.asked[-1], _ROLL_BACK, errand.group))
        found = {name: question.properties.get(name) for name in sent}
        if (question.topic, question.queue_id, found) == (errand.topic, 0, {**sent, "WAIT": "false"}):
            return ""
        return f"of the half message at {half.offset} a question has {question.topic}, {question.queue_id}, {found}"


def _asked_about(producer: Visitor) -> Sequence[bytes]:
    return [question.body for question in producer.questions]


async def join(errand: Errand, producer: Visitor) -> None:
    """Be a producer of the errand's group."""
    check(await producer.client.heartbeat(producers=[errand.group]))


async def prepare(
    errand: Errand, producer: Visitor, body: str = "", topic: str = "", more: Mapping[str, str] = MappingProxyType({})
) -> Prepared:
    """Send a half message with the errand's key, unless `more` has another one."""
    key = f"errand-{errand.number}"
    properties = {
        "KEYS": key,
        "UNIQ_KEY": key,
        PROPERTY_TRANSACTION_PREPARED: "true",
        PROPERTY_PRODUCER_GROUP: errand.group,
        **more,
    }
    code, sent = await producer.client.send(
        topic or errand.topic,
        (body or key).encode(),
        0,
        properties,
        sys_flag=TRANSACTION_PREPARED_TYPE,
        producer_group=errand.group,
        born_timestamp=errand.node.wall_clock.now_ms(),
    )
    if code != ResponseCode.SUCCESS or not isinstance(sent, SendMessageResponseHeader):
        raise GivenUp
    return Prepared(sent.queue_offset, decode_message_id(sent.msg_id)[1], properties["UNIQ_KEY"])


async def is_asked(producer: Visitor) -> bool:
    """Whether a producer is asked about any half message in time."""
    return await producer.wait(lambda: bool(producer.asked), _ASKED_S)


async def _one_message(errand: Errand, producer: Visitor) -> str:
    found: Sequence[object] = (await errand.read(producer.client)).messages
    if len(found) != 1:
        return f"{AT_ONCE_S:g} s after a commit there are {len(found)} messages"
    return ""
