"""Errands of members of a group, and of slaves of a master."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence

import trio

from rmq_actors.client.consumer_config import PushConsumerConfig
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.message_listener import ConsumeOrderlyContext, Orderly
from rmq_actors.client.push_consumer import run_push_consumer
from rmq_actors.testing.consumer_groups import open_application_client
from rmq_actors.testing.errand import Errand, GivenUp
from rmq_actors.testing.errands_of_settings import make_topic
from rmq_actors.wire.address import parse_address
from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere
from rmq_actors.wire.response_code import ResponseCode

_QUEUES = 4
#: How long what was sent is waited for, and what a second member does with its queues.
_COMES_S, _SETTLES_S = 40.0, 8.0
#: What a slave says of its log, how often, and how long one that takes nothing may stay: a master waits 20 s.
_REPORT = struct.Struct(">q")
_REPORTS_S, _STAYS_S = 2.0, 30.0
#: How many connections more come than there may be, and how long they stay.
_MORE, _CROWD_S = 4, 2.0
#: More than the buffers of a connection hold.
_LONG, _MESSAGES = b"x" * 900, 12


async def queues_change_hands(errand: Errand) -> str:
    """With order, what a member has consumed before another one comes and takes some queues is not consumed again."""
    async with errand.visitor() as sender:
        await make_topic(errand, sender.client, queues=_QUEUES)
        for number in range(_QUEUES):
            code, _ = await sender.client.send(errand.topic, b"%d" % number, number)
            if code != ResponseCode.SUCCESS:
                raise GivenUp
    consumed = list[bytes]()
    came = trio.Event()

    async def listen(messages: Sequence[MessageExt], _: ConsumeOrderlyContext) -> None:
        consumed.extend(message.body for message in messages)
        if len(consumed) >= _QUEUES:
            came.set()

    own = PushConsumerConfig(errand.group, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    async with (
        open_application_client(errand.brokers, errand.node, f"{errand.group}-1") as one,
        run_push_consumer(one, own, {errand.topic: "*"}, Orderly(listen)),
    ):
        with trio.move_on_after(_COMES_S):
            await came.wait()
        if not came.is_set():
            raise GivenUp
        await trio.sleep(errand.below(4) / 10)  # offsets are committed each second
        async with (
            open_application_client(errand.brokers, errand.node, f"{errand.group}-2") as other,
            run_push_consumer(other, own, {errand.topic: "*"}, Orderly(listen)) as member,
        ):
            await trio.sleep(_SETTLES_S)
            if not member.queues:
                raise GivenUp
    again = len(consumed) - _QUEUES
    return f"of {_QUEUES} messages {again} were consumed again as queues changed hands" if again else ""


async def takes_nothing(errand: Errand) -> str:
    """A slave that reports, and takes nothing of what it is sent, is let go after haHousekeepingInterval."""
    host, port = parse_address(errand.brokers.addresses(errand.master).ha)
    try:
        stream = await trio.open_tcp_stream(host, port)
    except OSError:
        raise GivenUp from None
    async with errand.visitor() as sender, stream:
        is_over = False
        try:
            await stream.send_all(_REPORT.pack(0))
            for number in range(_MESSAGES):
                await errand.send(sender.client, b"%d%s" % (number, _LONG))
            with trio.move_on_after(_STAYS_S):
                while True:
                    await trio.sleep(_REPORTS_S)
                    await stream.send_all(_REPORT.pack(0))
        except trio.BrokenResourceError:
            is_over = True
    return "" if is_over else f"a slave that has taken nothing for {_STAYS_S:g} s is connected"


async def crowd_of_one_address(errand: Errand) -> str:
    """However many connections come to the HA port from one address, it keeps no more than it may."""
    limit = errand.config.ha.connections_max_per_address
    host, port = parse_address(errand.brokers.addresses(errand.master).ha)
    ended = 0

    async def come() -> None:
        nonlocal ended
        with contextlib.suppress(OSError, trio.BrokenResourceError):
            async with await trio.open_tcp_stream(host, port) as stream:
                await stream.receive_some()
        ended += 1

    async with trio.open_nursery() as nursery:
        for _ in range(limit + _MORE):
            nursery.start_soon(come)
        await trio.sleep(_CROWD_S)
        kept = limit + _MORE - ended
        nursery.cancel_scope.cancel()
    return f"{kept} connections of one address are kept, of which there may be {limit}" if kept > limit else ""
