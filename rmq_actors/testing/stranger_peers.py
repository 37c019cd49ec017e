"""Strangers that do not ask but lean on ports: `visit_ports` has one after the other come, do its act, and go."""

from __future__ import annotations

import contextlib

import attrs
import trio

from rmq_actors.testing.brokers import BrokersUnderTest
from rmq_actors.testing.clients import LOOK_EVERY_S
from rmq_actors.testing.strange_bytes import ACTS_AT_HA, ACTS_AT_REMOTING, ACTS_AT_SHUT_HA, StrangeAct
from rmq_actors.testing.strange_requests import Dice
from rmq_actors.wire.address import parse_address

_CONNECT_S = 3.0
_PAUSE_S = 0.5
_OF_MASTERS = 0.6
_RECEIVE_BYTES = 4096


@attrs.frozen(eq=False)
class StrangerPeers:
    """Those of one machine, which run until `stopping`."""

    brokers: BrokersUnderTest
    stopping: trio.Event

    async def run(self, dice: Dice, at_ha: int, at_remoting: int) -> None:
        """Have so many strangers at a time at the ports of both kinds."""
        async with trio.open_nursery() as nursery:
            for _ in range(at_ha):
                nursery.start_soon(self._come_and_go, dice, True)
            for _ in range(at_remoting):
                nursery.start_soon(self._come_and_go, dice, False)
            await self.stopping.wait()
            nursery.cancel_scope.cancel()

    async def _come_and_go(self, dice: Dice, is_at_ha: bool) -> None:
        at_ha = ACTS_AT_SHUT_HA if self.brokers.workload.allows_slaves_alone else ACTS_AT_HA
        acts = at_ha if is_at_ha else ACTS_AT_REMOTING
        while True:
            running = self.brokers.running
            if not running:
                await trio.sleep(LOOK_EVERY_S)
                continue
            master = self.brokers.master
            broker = master if dice.random() < _OF_MASTERS else dice.choice(running)
            addresses = self.brokers.addresses(broker)
            act = acts[dice.choice(tuple(acts))](dice)
            with contextlib.suppress(OSError, trio.BrokenResourceError):
                await self._do(act, addresses.ha if is_at_ha else addresses.remoting)
            await trio.sleep(dice.random() * _PAUSE_S)

    async def _do(self, act: StrangeAct, address: str) -> None:
        host, port = parse_address(address)
        with trio.move_on_after(_CONNECT_S):
            stream = await trio.open_tcp_stream(host, port)
            async with stream:
                with trio.move_on_after(act.stays_s):
                    await self._say(stream, act)
                    if act.reads:
                        await self._read(stream)
                    else:
                        await trio.sleep_forever()

    async def _say(self, stream: trio.SocketStream, act: StrangeAct) -> None:
        if act.data:
            await stream.send_all(act.data)
        if act.then:
            await trio.sleep(act.stays_s / 2)
            await stream.send_all(act.then)

    async def _read(self, stream: trio.SocketStream) -> None:
        while await stream.receive_some(_RECEIVE_BYTES):
            pass
