"""Clients of brokers whose settings are drawn: `SettingsClients`. Each does what these settings want of a client.

Topics are made by an administrator where brokers make none, a group that was turned off is turned on again, and some
messages name light queues.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.testing.clients import CHAOS_TOPIC, LOOK_EVERY_S, PUT_AGAIN_S, WRITERS
from rmq_actors.testing.errand import Errand
from rmq_actors.testing.errand_clients import ErrandClients
from rmq_actors.testing.errands import ERRANDS, ERRANDS_OF_SETTINGS
from rmq_actors.testing.thin_client import Ask, ThinClient, make_topic_request, send_request
from rmq_actors.testing.workload import settings_of
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.dispatch_request import MULTI_DISPATCH_QUEUE_SPLITTER, PROPERTY_INNER_MULTI_DISPATCH
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node

#: Where messages stand that name light queues, and these.
LIGHT_TOPIC = "Lights"
LIGHT_QUEUES = ("%LMQ%one", "%LMQ%two", "%LMQ%three")
_BODY = b"light"


@attrs.define(eq=False, repr=False)
class SettingsClients(ErrandClients):
    """See the module. `lights_left` is how many messages are yet to name light queues.

    Half of the errands begin once faults and operations are over. An administrator helps only where a setting, or an
    operator, is the reason for what a broker refuses: a topic that is lost stays lost for the judge to see.
    """

    lights_left: int = attrs.field(default=0, init=False)
    #: Whether some broker is to make no topics, or was, by the case's settings or by an operator, who sets this.
    makes_topics: bool = attrs.field(default=False, init=False)
    #: Whether brokers turn slow groups off.
    _turns_groups_on: bool = attrs.field(init=False)
    _kinds_of_the_run: list[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        settings = settings_of(self.brokers.workload.settings)
        self._kinds_of_the_run = [
            name for name in ERRANDS_OF_SETTINGS if not ERRANDS[name].needs or ERRANDS[name].needs in settings
        ]
        apart = settings_of(self.brokers.workload.settings_apart)
        self.makes_topics = "false" in (each.get("autoCreateTopicEnable") for each in (settings, apart))
        self._turns_groups_on = settings.get("disableConsumeIfConsumerReadSlowly") == "true"
        if "autoCreateTopicEnable=false" in self.brokers.workload.settings_apart:
            # What a slave took over from its master counts once it is the master itself.
            self._kinds_of_the_run += ["unknown_topic"] * 2
        self.errands_left = 2 * self._of_the_first
        if "enableLmq" in settings:
            self.lights_left = self.brokers.workload.puts // 2

    def _kinds(self, *, is_first: bool) -> Sequence[str]:
        return self._kinds_of_the_run

    @property
    def _may_begin(self) -> bool:
        return super()._may_begin and (self._begun < self._of_the_first or self.brokers.is_settled)

    @property
    def are_done(self) -> bool:
        """Whether all errands are over, and all light messages are stored."""
        return super().are_done and self.lights_left <= 0

    def run_beside(self, kind: str, name: str) -> None:
        """Begin an errand at a broker, beside what somebody does with that."""
        self._begun += 1
        self._under_way += 1
        errand = Errand(self._begun, name, self.brokers, self._consumers)

        async def run() -> None:
            await self._run(errand, [kind])
            self._under_way -= 1

        self._consumers.start_soon(run)

    async def _consume_all(self, node: Node) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super()._consume_all, node)
            nursery.start_soon(self._send_lights, node)

    # --- what brokers want of clients ---------------------------------------------------------------------------------

    def _client(self, remoting: RemotingClient, broker: str, timeout_ms: int = 5_000) -> ThinClient:
        client = super()._client(remoting, broker, timeout_ms)
        return attrs.evolve(client, ask=functools.partial(self._ask, client.ask, client.group))

    async def _ask(self, ask: Ask, group: str, request: RemotingCommand) -> RemotingCommand:
        """Once more, if an administrator can help, and is to."""
        answer = await ask(request)
        lacks_topic = answer.code == ResponseCode.TOPIC_NOT_EXIST and request.code != RequestCode.PULL_MESSAGE
        if lacks_topic and self.makes_topics:
            helped = await ask(make_topic_request(CHAOS_TOPIC, WRITERS))
        elif answer.code == ResponseCode.NO_PERMISSION and self._turns_groups_on:
            on = SubscriptionGroupConfig(group_name=group)
            helped = await ask(RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode_body(on)))
        else:
            return answer
        if helped.code != ResponseCode.SUCCESS:
            return answer
        return await ask(request)

    # --- light queues -------------------------------------------------------------------------------------------------

    async def _send_lights(self, node: Node) -> None:
        async with self._open("lights", node) as remoting:
            while not self._stopping.is_set() and self.lights_left > 0:
                master = self._master()
                is_stored = False if master is None else await self._send_light(remoting, master, node)
                self.lights_left -= is_stored
                pause_s = node.entropy.random() * self.brokers.workload.pause_s if is_stored else PUT_AGAIN_S
                await trio.sleep(max(pause_s, LOOK_EVERY_S))

    async def _send_light(self, remoting: RemotingClient, master: str, node: Node) -> bool:
        """Whether a message is stored, though perhaps not as safely as was asked."""
        address = self.brokers.addresses(master).remoting
        first = int(node.entropy.random() * len(LIGHT_QUEUES))
        named = MULTI_DISPATCH_QUEUE_SPLITTER.join(LIGHT_QUEUES[first : first + 2])
        request = send_request(LIGHT_TOPIC, _BODY, 0, {PROPERTY_INNER_MULTI_DISPATCH: named})
        try:
            answer = await remoting.invoke(address, request, 5_000)
            if answer.code == ResponseCode.TOPIC_NOT_EXIST and self.makes_topics:
                await remoting.invoke(address, make_topic_request(LIGHT_TOPIC, 1), 5_000)
        except RemotingError:
            return False
        return "msgId" in (answer.ext_fields or {})

    def has_all_delayed(self, broker: BrokerController) -> bool:
        """Nothing is delayed here."""
        return True
