"""Where topics and brokers are, as the name servers say (updateTopicRouteInfoFromNameServer).

A route is asked for when a topic is used first, and again every pollNameServerInterval, and when a caller finds that it
does not hold any more. Tasks that want the route of one topic share one request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread, WakeUp
from rmq_actors.actors.services.timer import Timer
from rmq_actors.client.client_error import (
    BadAnswer,
    BrokerRefused,
    BrokerUnreachable,
    ClientError,
    ClientTimeout,
    NameServersUnreachable,
    NoRoute,
)
from rmq_actors.client.config import ClientConfig
from rmq_actors.client.requests import ClientRequests, deadline_after
from rmq_actors.protocols.topic_publish_info import (
    MASTER_ID,
    IllegalRoute,
    TopicPublishInfo,
    default_topic_route,
    subscribe_queues,
    topic_publish_info,
)
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.routes import TopicRouteData
from rmq_actors.wire.headers.codec import CommandHeader
from rmq_actors.wire.headers.topics import GetRouteInfoRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)

#: The topic whose settings a broker gives to one that it makes (TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC).
DEFAULT_TOPIC = "TBW102"

#: The least time between two refreshes that callers ask for.
_REFRESH_PAUSE_S = 1.0

#: Hears that a topic has another route than before, or its first one.
RouteListener = Callable[[str], None]


@attrs.define(eq=False, repr=False)
class _Known:
    """One topic's route. `is_default`: the default topic's, until a broker has made this one."""

    route: TopicRouteData
    publish: TopicPublishInfo
    subscribe: tuple[MessageQueue, ...]
    is_default: bool = False


@attrs.define(eq=False, repr=False)
class _Asking:
    """The turn of those that ask for one topic, one after the other."""

    lock: trio.Lock = attrs.field(factory=trio.Lock)
    waiting: int = 0
    #: Counts the answers, and what the last one was.
    answers: int = 0
    failure: ClientError | None = None


@attrs.define(eq=False, repr=False)
class TopicRoutes(ServiceThread):
    """A Service: refreshes the routes that were asked for."""

    name = "TopicRoutes"
    _config: ClientConfig
    _requests: ClientRequests
    _timer: Timer
    #: Called at each change, in the task that asked: they must not block.
    listeners: list[RouteListener] = attrs.field(factory=list, init=False)
    _known: dict[str, _Known] = attrs.field(factory=dict, init=False)
    _kept: dict[str, None] = attrs.field(factory=dict, init=False)
    _asking: dict[str, _Asking] = attrs.field(factory=dict, init=False)
    #: Addresses by brokerId, by brokerName.
    _brokers: dict[str, dict[int, str]] = attrs.field(factory=dict, init=False)
    #: The name server that answered last: it is asked first.
    _preferred: int = attrs.field(default=0, init=False)
    _due: WakeUp = attrs.field(factory=WakeUp, init=False)

    # --- what is known ------------------------------------------------------------------------------------------------

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose routes are kept up to date: those that were asked for, and those to be kept."""
        return tuple({**dict.fromkeys(self._kept), **self._known})

    def keep(self, topic: str) -> None:
        """Keep the route of a topic up to date from the next refresh on, if there is one.

        That of a producer's default topic tells where new masters are also while its own topic is at none of them.
        """
        self._kept[topic] = None

    def known_route(self, topic: str) -> TopicRouteData | None:
        """The topic's route as it was last heard of; None if it never was. The default topic's does not count."""
        known = self._known.get(topic)
        return None if known is None or known.is_default else known.route

    def known_publish_info(self, topic: str) -> TopicPublishInfo | None:
        """Where messages of the topic go as far as is known; None if no broker takes them."""
        known = self._known.get(topic)
        return None if known is None or not known.publish.queues else known.publish

    def known_subscribe_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of the topic that may be read, as far as is known."""
        known = self._known.get(topic)
        return () if known is None or known.is_default else known.subscribe

    def broker_addresses(self, broker_name: str) -> Mapping[int, str]:
        """The addresses ("host:port") of the brokers of this name, by brokerId: 0 is the master."""
        return self._brokers.get(broker_name, {})

    def master_address(self, broker_name: str) -> str | None:
        """Where the master of this name is, to which alone messages go (findBrokerAddressInPublish)."""
        return self.broker_addresses(broker_name).get(MASTER_ID)

    @property
    def brokers(self) -> Mapping[str, Mapping[int, str]]:
        """Every known broker: addresses by brokerId, by brokerName."""
        return self._brokers

    # --- what is asked ------------------------------------------------------------------------------------------------

    async def route(self, topic: str, deadline_s: float) -> TopicRouteData:
        """The topic's route, asked for if it is not known. Raises `NoRoute`, and as `update`."""
        known = self.known_route(topic)
        if known is not None:
            return known
        await self.update(topic, deadline_s)
        return self._known[topic].route

    async def publish_info(
        self,
        topic: str,
        deadline_s: float,
        default_topic: str = DEFAULT_TOPIC,
        default_topic_queue_nums: int = 4,
    ) -> TopicPublishInfo:
        """Where to send messages of a topic. One that no broker has yet is sent as brokers will make it.

        That is as they make it of `default_topic`, with `default_topic_queue_nums` queues or less. Raises
        `BrokerUnreachable` if no master is known that takes messages of it, and as `update`.
        """
        info = self.known_publish_info(topic)
        if info is not None:
            return info
        try:
            await self.update(topic, deadline_s)
        except NoRoute:
            await self._update_by_default_topic(topic, deadline_s, default_topic, default_topic_queue_nums)
        info = self.known_publish_info(topic)
        if info is None:
            raise BrokerUnreachable(f"topic {topic}: no master is known that takes messages of it")
        return info

    async def update(self, topic: str, deadline_s: float) -> None:
        """Ask for the route of a topic now, or wait for a task that asks already.

        Raises `NoRoute` if the name servers do not know the topic, `NameServersUnreachable`, `ClientTimeout`,
        `BadAnswer`, `BrokerRefused`.
        """
        asking = self._asking.setdefault(topic, _Asking())
        answers = asking.answers
        asking.waiting += 1
        try:
            with trio.move_on_at(deadline_s):
                async with asking.lock:
                    if asking.answers == answers:
                        await self._ask_for_route(topic, asking, deadline_s)
                if asking.failure is not None:
                    raise asking.failure
                return
        finally:
            asking.waiting -= 1
            if not asking.waiting:
                del self._asking[topic]
        raise ClientTimeout(f"topic {topic}: its route was not heard of in time")

    async def ask_name_server(
        self, code: RequestCode, header: CommandHeader | None = None, body: bytes = b"", *, deadline_s: float
    ) -> RemotingCommand:
        """Ask the name servers, one after the other until one answers; each may take its share of the time left.

        Raises `NameServersUnreachable`, `BrokerRefused` for what one refuses.
        """
        addresses = self._config.name_servers
        failures = list[str]()
        for number in range(len(addresses)):
            index = (self._preferred + number) % len(addresses)
            share_s = (deadline_s - trio.current_time()) / (len(addresses) - number)
            try:
                response = await self._requests.request(
                    addresses[index], code, header, body, deadline_s=trio.current_time() + share_s
                )
            except BrokerRefused as error:
                self._preferred = index
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                why = f"{error.remark}: {addresses[index]} is no name server"
                raise BrokerRefused(addresses[index], code, error.code, why) from error
            except ClientError as error:
                failures.append(str(error))
            else:
                self._preferred = index
                return response
        raise NameServersUnreachable("no name server answers: " + "; ".join(failures))

    async def _ask_for_route(self, topic: str, asking: _Asking, deadline_s: float) -> None:
        asking.failure = None
        try:
            self._take(topic, await self._fetch(topic, deadline_s), is_default=False)
        except ClientError as error:
            # What ran out of this caller's time says nothing to those who have more.
            if isinstance(error, NoRoute | BrokerRefused | BadAnswer):
                asking.answers += 1
                asking.failure = error
                return
            raise
        asking.answers += 1

    async def _update_by_default_topic(
        self, topic: str, deadline_s: float, default_topic: str, queue_nums: int
    ) -> None:
        try:
            await self.update(default_topic, deadline_s)
        except NoRoute:
            raise NoRoute(f"topic {topic}: no broker has it, and none makes topics at their first message") from None
        route = self._known[default_topic].route
        if self.known_route(topic) is None:
            self._take(topic, default_topic_route(route, queue_nums), is_default=True)

    async def _fetch(self, topic: str, deadline_s: float) -> TopicRouteData:
        header = GetRouteInfoRequestHeader(topic, accept_standard_json_only=True)
        try:
            response = await self.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, deadline_s=deadline_s)
            return decode_body(TopicRouteData, response.body)
        except BrokerRefused as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise NoRoute(f"topic {topic}: the name servers know no broker that has it") from error
            raise
        except RemotingCommandError as error:
            raise BadAnswer(f"topic {topic}: its route cannot be read: {error}") from error

    def _take(self, topic: str, route: TopicRouteData, *, is_default: bool) -> None:
        old = self._known.get(topic)
        if old is None or old.route != route or old.is_default != is_default:
            try:
                new = _Known(route, topic_publish_info(topic, route), subscribe_queues(topic, route), is_default)
            except IllegalRoute as error:
                raise BadAnswer(str(error)) from error
            self._known[topic] = new
        for data in route.broker_datas:
            self._brokers[data.broker_name] = dict(data.broker_addrs)
        if self._known[topic] is not old:
            for listener in self.listeners:
                listener(topic)

    def refresh_soon(self) -> None:
        """Ask for all routes again, as a broker is not what they say; once a second at most."""
        self._due.wakeup("doubt")

    # --- from time to time --------------------------------------------------------------------------------------------

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Ask for every route again, every pollNameServerInterval."""
        with self._timer.every(self._config.poll_name_server_interval_ms / 1000, self._due.wakeup, self):
            task_status.started()
            while True:
                await self._due.wait_for_running(float("inf"))
                await self._refresh()
                await trio.sleep(_REFRESH_PAUSE_S)

    async def _refresh(self) -> None:
        for topic in self.topics:
            try:
                await self.update(topic, deadline_after(self._config.mq_client_api_timeout_ms))
            except NoRoute:
                pass  # it was deleted, or no broker has made it yet: what was known of it stays, as in RocketMQ
            except (NameServersUnreachable, ClientTimeout, BrokerUnreachable) as error:
                _log.warning("routes stay as they are: %s", error)
                break
            except ClientError as error:
                _log.warning("the route of topic %s stays as it is: %s", topic, error)
        self._forget_brokers()

    def _forget_brokers(self) -> None:
        """Forget brokers that no route names any more (cleanOfflineBroker)."""
        named = {data.broker_name for known in self._known.values() for data in known.route.broker_datas}
        for name in [name for name in self._brokers if name not in named]:
            del self._brokers[name]
