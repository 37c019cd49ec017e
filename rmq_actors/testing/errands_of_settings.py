"""Errands at brokers whose settings an operator has set: what each of these settings means to clients."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable

import trio

from rmq_actors.broker.broker_protection_service import PROTECT_INTERVAL_S
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.testing.errand import AT_ONCE_S, Errand, GivenUp, check
from rmq_actors.testing.thin_client import ThinClient, make_topic_request
from rmq_actors.testing.workload import settings_of
from rmq_actors.tracing.events.run import ClientTopic
from rmq_actors.wire.address import parse_address
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rmq_actors.wire.dispatch_request import MULTI_DISPATCH_QUEUE_SPLITTER, PROPERTY_INNER_MULTI_DISPATCH
from rmq_actors.wire.frame_reader import FrameReader, buffer_bytes_for
from rmq_actors.wire.headers.topics import DeleteTopicRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError, encode_command
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

#: Slaves copy tables each 10 s.
_COPIED_S = 25.0
#: How many messages a slow group is behind. Each has one byte more than half of what the group may be behind.
_BEHIND = 3
#: So far below listenPort is the fast port.
_FAST_PORT_BELOW = 2
#: A long frame: more than a usual buffer has; and how many there are beside those that have room.
_LONG_BYTES, _BESIDE_ROOM = 100_000, 2
#: How long the long frames take; a connection that the broker closes is noticed within this time, too.
_LONG_S = 4.0
#: A slow reader asks so much that the answers are more than the buffers of both sides hold.
_ONE_SEGMENT_BYTES = 1_300
#: When it begins to read, and how long after that the last byte may come at the latest: the broker gives it 1 s in all.
READS_AFTER_S, _READS_S = 1.2, 0.7
#: How long it waits for what does not come.
_GIVES_UP_S = 10.0


async def make_topic(errand: Errand, client: ThinClient, topic: str = "", queues: int = 1) -> None:
    """As an operator does. Raises `GivenUp` if it is refused."""
    check(await client.ask(make_topic_request(topic or errand.topic, queues)))


async def _delete_topic(errand: Errand, client: ThinClient, topic: str) -> None:
    told = ClientTopic(status="asked", operation="delete", topic=topic)
    errand.brokers.recorder.record(told, errand.master)
    check(await client.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic)))


def in_a_made_topic(run: Callable[[Errand], Awaitable[str]]) -> Callable[[Errand], Awaitable[str]]:
    """The errand once an operator has made its topic. Where brokers turn slow groups off, it says nothing of one."""

    @functools.wraps(run)
    async def run_in_a_made_topic(errand: Errand) -> str:
        turns_off = settings_of(errand.brokers.workload.settings).get("disableConsumeIfConsumerReadSlowly") == "true"
        async with errand.visitor() as operator:
            await make_topic(errand, operator.client)
            wrong = await run(errand)
            if wrong and turns_off:
                # Without an answer nothing excuses what is wrong.
                with contextlib.suppress(GivenUp, RemotingError):
                    return wrong if await _is_on(operator.client, errand.group) else ""
            return wrong

    run_in_a_made_topic.__name__ = f"{run.__name__}_in_a_made_topic"
    return run_in_a_made_topic


async def _is_on(client: ThinClient, group: str) -> bool:
    answer = check(await client.request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
    found = decode_body(SubscriptionGroupWrapper, answer.body).subscription_group_table.get(group)
    return found is None or found.consume_enable


# --- topics -----------------------------------------------------------------------------------------------------------


async def unknown_topic(errand: Errand) -> str:
    """With autoCreateTopicEnable=false no client makes a topic by sending to it, whatever is in the broker's file."""
    async with errand.visitor() as sender:
        may_make = errand.config.auto_create_topic_enable
        code, _ = await sender.client.send(errand.topic, b"one")
        if may_make or errand.config.auto_create_topic_enable:
            return ""
        if code == ResponseCode.SUCCESS:
            return "autoCreateTopicEnable=false, and a message to a topic that nobody has made is taken"
        await make_topic(errand, sender.client)
        await errand.send(sender.client, b"two")
        found = await _read_all(sender.client, errand.topic, 1)
        return "" if found == [b"two"] else f"a topic that was made by hand has {found}, and was sent one message"


# --- slow groups ------------------------------------------------------------------------------------------------------


async def slow_group(errand: Errand) -> str:
    """A group that is too far behind is turned off at the next look, until an operator turns it on again."""
    async with errand.visitor() as reader:
        await _fall_behind(errand, reader.client)
        await trio.sleep(PROTECT_INTERVAL_S + AT_ONCE_S)
        if (await reader.client.pull(errand.topic, 1)).code != ResponseCode.NO_PERMISSION:
            return "a group is further behind than consumerFallbehindThreshold, and was not turned off"
        group = SubscriptionGroupConfig(group_name=errand.group)
        check(await reader.client.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode_body(group)))
        pulled = await reader.client.pull(errand.topic, 1)
        return "" if pulled.messages else f"a group that was turned on again gets {pulled.code}: {pulled.remark}"


async def slow_group_of_a_deleted_topic(errand: Errand) -> str:
    """Nobody is behind in a topic that is deleted: its group goes on in others."""
    other = f"{errand.topic}-other"
    async with errand.visitor() as reader:
        await _fall_behind(errand, reader.client)
        await make_topic(errand, reader.client, other)
        await errand.send(reader.client, b"one", other)
        await _delete_topic(errand, reader.client, errand.topic)
        if not await _is_on(reader.client, errand.group):
            raise GivenUp  # the broker has looked just before
        await trio.sleep(PROTECT_INTERVAL_S + AT_ONCE_S)
        pulled = await reader.client.pull(other, 0)
        if pulled.code != ResponseCode.NO_PERMISSION:
            return ""
        return f"a group was turned off for what it was behind in a topic that is deleted: {pulled.remark}"


async def _fall_behind(errand: Errand, client: ThinClient) -> None:
    """The errand's topic has more than the group may be behind, of which it has pulled the first message."""
    config = errand.config
    if not config.disable_consume_if_consumer_read_slowly:
        raise GivenUp
    await make_topic(errand, client)
    body = bytes(config.consumer_fallbehind_threshold_bytes // (_BEHIND - 1) + 1)
    for _ in range(_BEHIND):
        code, _ = await client.send(errand.topic, body)
        if code != ResponseCode.SUCCESS:
            raise GivenUp
    await errand.read(client, count=_BEHIND)
    if len((await client.pull(errand.topic, 0, max_messages=1)).messages) != 1:
        raise GivenUp


# --- long frames ------------------------------------------------------------------------------------------------------


async def long_frames(errand: Errand) -> str:
    """Both ports of a broker together hold no more of long frames than the settings say; others are served."""
    config = errand.config
    assert config.remoting is not None
    most = min(config.remoting.received_bytes_max, config.remoting.received_bytes_per_address_max)
    room = most // buffer_bytes_for(_LONG_BYTES)
    host, port = parse_address(errand.brokers.addresses(errand.master).remoting)
    held, ended = list[int](), list[int]()
    frame = encode_command(RemotingCommand(RequestCode.HEART_BEAT, body=bytes(_LONG_BYTES)))[:-1]

    async def hold(number: int) -> None:
        try:
            async with await trio.open_tcp_stream(host, port - _FAST_PORT_BELOW * (number % 2)) as stream:
                await stream.send_all(frame)
                held.append(number)
                await stream.receive_some(1)
        except OSError:
            raise GivenUp from None
        except trio.BrokenResourceError:
            pass
        ended.append(number)

    async with errand.visitor() as other, trio.open_nursery() as nursery:
        for number in range(room + _BESIDE_ROOM):
            nursery.start_soon(hold, number)
        await trio.sleep(_LONG_S)
        await other.client.committed(errand.topic)
        left = {*held} - {*ended}
        nursery.cancel_scope.cancel()
    if len(left) <= room:
        return ""
    return f"a broker holds long frames of {len(left)} connections of one address, and has room for those of {room}"


# --- light queues -----------------------------------------------------------------------------------------------------


async def light_queues(errand: Errand) -> str:
    """A light queue has what names it, in the order in which it was sent; once more from 0 after it was deleted."""
    names = [f"%LMQ%{errand.topic}-{letter}" for letter in "ab"]
    async with errand.visitor() as client:
        for topic in (errand.topic, *names):
            await make_topic(errand, client.client, topic)
        wanted = {name: list[bytes]() for name in names}
        await _send_light(errand, client.client, names, wanted, "first")
        if wrong := await _wrong_light(client.client, wanted):
            return wrong
        if errand.below(2):
            gone = names[errand.below(len(names))]
            await _delete_topic(errand, client.client, gone)
            if not errand.brokers.is_settled:
                # One that becomes the master before it is told of that goes on with the old queue.
                await trio.sleep(_COPIED_S)
            await make_topic(errand, client.client, gone)
            wanted[gone] = []
            await _send_light(errand, client.client, names, wanted, "again")
            if wrong := await _wrong_light(client.client, wanted):
                return wrong
        return await _light_at_a_slave(errand, wanted)


async def _send_light(
    errand: Errand, client: ThinClient, names: list[str], wanted: dict[str, list[bytes]], word: str
) -> None:
    for number in range(3 + errand.below(4)):
        chosen, body = names[: 1 + errand.below(2)], f"{word}-{number}".encode()
        properties = {"KEYS": f"{number}", PROPERTY_INNER_MULTI_DISPATCH: MULTI_DISPATCH_QUEUE_SPLITTER.join(chosen)}
        code, _ = await client.send(errand.topic, body, 0, properties)
        if code != ResponseCode.SUCCESS:
            raise GivenUp
        for name in chosen:
            wanted[name].append(body)


async def _light_at_a_slave(errand: Errand, wanted: dict[str, list[bytes]]) -> str:
    slave = errand.a_slave()
    await trio.sleep(_COPIED_S)
    async with errand.visitor(slave) as reader:
        wrong = await _wrong_light(reader.client, wanted)
    return f"{slave}: {wrong}" if wrong else ""


async def _wrong_light(client: ThinClient, wanted: dict[str, list[bytes]]) -> str:
    for name, bodies in wanted.items():
        found = await _read_all(client, name, len(bodies))
        if found != bodies:
            return f"{name} was named by {bodies}, and has {found}"
    return ""


async def _read_all(client: ThinClient, topic: str, count: int) -> list[bytes]:
    """Queue 0 from its beginning, once it has so many messages or a moment is over: a pull may give a few at a time."""
    found, over_at_s = list[bytes](), trio.current_time() + AT_ONCE_S
    offset = 0
    while True:
        pulled = await client.pull(topic, offset)
        if pulled.header is None:
            raise GivenUp
        found += pulled.bodies
        if not pulled.messages:
            if len(found) >= count or trio.current_time() > over_at_s:
                return found
            await trio.sleep(AT_ONCE_S / 10)
        offset = pulled.header.next_begin_offset


# --- stops ------------------------------------------------------------------------------------------------------------


async def read_while_it_stops(errand: Errand) -> str:
    """A broker that stops in order gives a client that reads on the frames that it owes, and no part of one."""
    host, port = parse_address(errand.brokers.addresses(errand.master).remoting)
    reader, asked, count = FrameReader(), b"", 0
    # What the broker has not read when it closes would reset the connection: all requests come at once.
    while len(asked) < _ONE_SEGMENT_BYTES:
        asked += encode_command(RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG, opaque=count))
        count += 1
    begun_s, answers, is_over = trio.current_time(), list[int](), False
    try:
        with trio.move_on_after(READS_AFTER_S + _GIVES_UP_S):
            async with await trio.open_tcp_stream(host, port) as stream:
                await stream.send_all(asked)
                await trio.sleep_until(begun_s + READS_AFTER_S)
                async for data in stream:
                    answers += _answers_in(reader, data)
            is_over = True
    except RemotingCommandError as error:
        return f"after {len(answers)} answers of a broker that stops comes what is none: {error}"
    except (OSError, trio.BrokenResourceError) as error:
        raise GivenUp from error
    if not is_over:
        raise GivenUp  # its machine has lost its power, say, and nobody says so
    if answers != list(range(len(answers))):
        return f"a broker that stops has sent the answers {answers} of {count}"
    if reader.pending_bytes and trio.current_time() < begun_s + READS_AFTER_S + _READS_S:
        return f"after {len(answers)} of {count} answers a broker that stops in order ends within a frame"
    return ""


def _answers_in(reader: FrameReader, data: bytes | bytearray) -> list[int]:
    """The numbers of the answers that are complete. Raises `RemotingCommandError` for bytes that are none."""
    found, rest = list[int](), memoryview(data)
    while rest:
        with reader.free_space() as space:
            count = min(len(space), len(rest))
            space[:count] = rest[:count]
        reader.received(count)
        while commands := reader.commands():
            found += [command.opaque for command in commands]
        rest = rest[count:]
    return found
