"""What callers pass by mistake is named at the door of each public function, before anything is done or awaited."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import trio

import rmq_actors
from rmq_actors import (
    Admin,
    AsyncioAdmin,
    AsyncioClient,
    AsyncioProducer,
    AsyncioPullConsumer,
    AsyncioPushConsumer,
    ClientClosed,
    Concurrently,
    Message,
    MessageModel,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    PushConsumerConfig,
    SubscriptionGroupConfig,
    TopicConfig,
    open_admin,
    open_asyncio_client,
    open_producer,
    open_pull_consumer,
    open_push_consumer,
    select_message_queue_by_hash,
)
from rmq_actors.client.consumer_table import RegisteredConsumer
from rmq_actors.embedding.cluster_clients import ClusterClients
from rmq_actors.protocols.message_checks import check_message
from rmq_actors.settings.argument_checks import checked

#: Port 1 of this host: nobody listens there.
NOBODY = "127.0.0.1:1"
QUEUE = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
CLIENTS = (Producer, Admin, PullConsumer, PushConsumer)
CLIENT_OF: Mapping[type, type] = {
    AsyncioProducer: Producer,
    AsyncioPullConsumer: PullConsumer,
    AsyncioPushConsumer: PushConsumer,
    AsyncioAdmin: Admin,
}
#: No doors: `ConsumerTable` calls what brokers have a consumer do, `run_producer` and the asyncio facade the others.
CALLED_WITHIN = {name for name in vars(RegisteredConsumer) if not name.startswith("_")} | {
    "start_accumulator",
    *("polling", "take", "take_one"),
}
#: Their arguments are bytes of a log, or what a producer passes to a selector, which it has looked at.
OTHER_FUNCTIONS = {"decode_message", "select_message_queue_by_hash"}


async def ignore(messages: object, context: object) -> None:
    pass


#: By its name something that an argument may be.
GOOD: Mapping[str, object] = {
    "message": Message("T", b"x"),
    "messages": [Message("T", b"x")],
    "queue": QUEUE,
    "queues": [QUEUE],
    "topic": "T",
    "group": "G",
    "key": "K",
    "msg_id": "M",
    "offset_msg_id": "0A00000100002A9F0000000000000000",
    "selector": select_message_queue_by_hash,
    "argument": "A",
    "offset": 0,
    "timestamp_ms": 0,
    "namesrv_addr": NOBODY,
    "producer_group": "G",
    "consumer_group": "G",
    "subscriptions": {"T": "*"},
    "listener": Concurrently(ignore),
    "directory": "store",
}


class Wrong:
    """Of no type that any argument has."""

    def __repr__(self) -> str:
        return "<wrong>"


def methods_of(kind: type) -> Iterator[Callable[..., Any]]:
    for name, method in vars(kind).items():
        if inspect.isfunction(method) and not name.startswith("_") and name not in CALLED_WITHIN:
            yield method


def public_functions() -> Iterator[Callable[..., Any]]:
    for name in rmq_actors.__all__:
        value = getattr(rmq_actors, name)
        if inspect.isfunction(value) and name not in OTHER_FUNCTIONS:
            yield value
    for kind in (*CLIENTS, AsyncioClient):
        yield from methods_of(kind)
    for name in ("producer", "consumer", "push_consumer", "admin"):
        yield getattr(ClusterClients, name)


FUNCTIONS = [*public_functions()]
ARGUMENTS = [
    (function, name)
    for function in FUNCTIONS
    for name, parameter in inspect.signature(function).parameters.items()
    if name != "self" and parameter.annotation not in {"A", "object"}
]


def call(function: Callable[..., Any], arguments: Mapping[str, object]) -> None:
    """As far as its first wait: nothing is behind `self`, so what is not refused by then fails in another way."""
    parameters = inspect.signature(function).parameters
    given = {
        name: GOOD[name]
        for name, parameter in parameters.items()
        if name != "self" and name not in arguments and parameter.default is inspect.Parameter.empty and name in GOOD
    }
    called = function(*[object()][: "self" in parameters], **given, **arguments)
    if inspect.iscoroutine(called):
        called.send(None)


def test_all_doors_are_there() -> None:
    names = {function.__qualname__ for function in FUNCTIONS}
    assert {
        "Producer.send",
        "PullConsumer.poll",
        "Admin.route",
        "PushConsumer.subscribe",
        "AsyncioClient.admin",
    } < names
    assert {"open_cluster", "open_producer", "open_push_consumer", "load_broker_config", "log_sha256"} < names
    assert len(ARGUMENTS) > 120


@pytest.mark.parametrize(
    ("function", "name"), ARGUMENTS, ids=[f"{function.__qualname__} {name}" for function, name in ARGUMENTS]
)
def test_an_argument_of_another_type_is_named_at_once(function: Callable[..., Any], name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{function.__qualname__}: {name} must be .*, not <wrong>$"):
        call(function, {name: Wrong()})


NUMBERS = [
    (function, name)
    for function, name in ARGUMENTS
    if str(inspect.signature(function).parameters[name].annotation) in {"int", "int | None"}
]


@pytest.mark.parametrize(("function", "name"), NUMBERS, ids=lambda each: getattr(each, "__qualname__", str(each)))
def test_a_number_that_cannot_be_is_named_at_once(function: Callable[..., Any], name: str) -> None:
    place = rf"^{function.__qualname__}: {name} must be "
    for value in (math.inf, math.nan, 0.5, "5", True):
        with pytest.raises(TypeError, match=place + r"a whole number"):
            call(function, {name: value})
    for value in (2**63, 10**400, 10**5000):
        with pytest.raises(ValueError, match=place + r"at most \d+, not "):
            call(function, {name: value})
    with pytest.raises(ValueError, match=place + r"at least -?\d+, not "):
        call(function, {name: -(2**63) - 1})


@pytest.mark.parametrize(
    ("function", "name", "value", "told"),
    [
        (Producer.send, "timeout_ms", -1, "timeout_ms must be at least 0, not -1"),
        (Producer.send, "message", None, "message must be Message, not None"),
        (Producer.send_batch, "messages", ["a"], "messages[0] must be Message, not 'a'"),
        (Producer.send_batch, "messages", "ab", "messages[0] must be Message, not 'a'"),
        (PullConsumer.poll, "timeout_ms", -1, "timeout_ms must be at least 0, not -1"),
        (PullConsumer.seek, "offset", -1, "offset must be at least 0, not -1"),
        (PullConsumer.pull, "max_msg_nums", 0, "max_msg_nums must be at least 1, not 0"),
        (PullConsumer.assign, "queues", "ab", "queues[0] must be MessageQueue, not 'a'"),
        (Admin.route, "topic", " ", "topic must be a name, not ' '"),
        (
            Producer.send,
            "queue",
            MessageQueue(topic="T", broker_name="b", queue_id=cast("int", "0")),
            "queue.queue_id must be a whole number, not '0'",
        ),
        (
            Producer.send,
            "queue",
            MessageQueue(topic="T", broker_name="b", queue_id=2**31),
            f"queue.queue_id must be at most {2**31 - 1}, not {2**31}",
        ),
        (
            Admin.create_topic,
            "config",
            TopicConfig(topic_name="T", perm=cast("int", "x")),
            "config.perm must be a whole number, not 'x'",
        ),
        (
            Admin.create_group,
            "config",
            SubscriptionGroupConfig(group_name="G", consume_enable=cast("bool", 1)),
            "config.consume_enable must be True or False, not 1",
        ),
        (rmq_actors.open_cluster, "slaves", -1, "slaves must be at least 0, not -1"),
        (rmq_actors.open_cluster, "name_server_port", 65536, "name_server_port must be at most 65535, not 65536"),
        (rmq_actors.open_cluster, "follows", {"a": 5}, "follows['a'] must be text or None, not 5"),
        (rmq_actors.open_cluster, "follows", {5: None}, "follows's key 5 must be text, not 5"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_told(function: Callable[..., Any], name: str, value: object, told: str) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        call(function, {name: value})
    assert str(raised.value) == f"{function.__qualname__}: {told}"


def test_a_coroutine_function_stays_one() -> None:
    for function in (Producer.send, Producer.send_batch, PullConsumer.poll, Admin.route, AsyncioProducer.send):
        assert inspect.iscoroutinefunction(function)
    assert not inspect.iscoroutinefunction(PullConsumer.subscribe)


def test_what_may_be_is_passed_on() -> None:
    @checked
    def function(number: int, /, text: str | None, *, names: list[str], other: object = None) -> tuple[object, ...]:
        return number, text, names, other

    assert function(1, None, names=["a"], other=Wrong) == (1, None, ["a"], Wrong)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nmaes'"):
        function(1, None, nmaes=["a"])  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (Message("T", b"x", properties={"KEYS": cast("str", 5)}), "Message.properties must hold text, not 'KEYS': 5"),
        (Message("T", b"x", properties={cast("str", 5): "x"}), "Message.properties must hold text, not 5: 'x'"),
        (Message("T", b"x", flag=cast("int", "x")), "Message.flag must be a whole number of 32 bits, not 'x'"),
        (Message("T", b"x", flag=2**31), f"Message.flag must be a whole number of 32 bits, not {2**31}"),
    ],
    ids=["value", "name", "flag", "long flag"],
)
def test_what_no_message_can_carry_is_named_before_it_is_sent(message: Message, told: str) -> None:
    with pytest.raises(TypeError) as raised:
        check_message(message, 1000)
    assert str(raised.value) == told


# --- in asyncio -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("facade", "client"), CLIENT_OF.items())
def test_asyncio_has_each_method_of_a_client_and_its_checks(facade: type, client: type) -> None:
    for method in methods_of(client):
        if method is not PullConsumer.poll:  # it gives a message that a cancelled call has taken to the next one
            assert getattr(facade, method.__name__).__wrapped__ is method


def test_asyncio_gets_the_same_error() -> None:
    async def main() -> None:
        async with open_asyncio_client(NOBODY) as client, client.producer("G") as producer:
            await producer.send(cast("Message", "text"))

    with pytest.raises(TypeError, match=r"^Producer\.send: message must be Message, not 'text'$"):
        asyncio.run(main())

    async def poll() -> None:
        async with open_asyncio_client(NOBODY) as client, client.pull_consumer("G") as consumer:
            await consumer.poll(-1)

    with pytest.raises(ValueError, match=r"^PullConsumer\.poll: timeout_ms must be at least 0, not -1$"):
        asyncio.run(poll())


# --- after the end ----------------------------------------------------------------------------------------------------


def calls_of(client: object) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each method of a client, with arguments that may be."""
    others = {"config": TopicConfig(topic_name="T")}
    for method in methods_of(CLIENT_OF.get(type(client), type(client))):
        name, parameters = method.__name__, inspect.signature(method).parameters
        given = {each: GOOD.get(each, others.get(each)) for each in parameters if each != "self"}
        arguments = {
            each: value for each, value in given.items() if parameters[each].default is inspect.Parameter.empty
        }
        if name == "create_group":
            arguments["config"] = SubscriptionGroupConfig(group_name="G")
        yield name, lambda name=name, arguments=arguments: getattr(client, name)(**arguments)  # type: ignore[misc]


async def say(made: Callable[[], Any]) -> None:
    called = made()
    if inspect.isawaitable(called):
        await called


async def check_closed(*clients: object) -> None:
    for client in clients:
        for name, made in calls_of(client):
            said: Exception | None = None
            try:
                await say(made)
            except ClientClosed as error:
                said = error
            assert said is not None, f"{type(client).__name__}.{name} says nothing"


#: A group of broadcasting consumers has no topic of retries that would be asked for.
PUSH = PushConsumerConfig("G", message_model=MessageModel.BROADCASTING)


@pytest.mark.trio
async def test_each_call_of_a_client_after_its_end(tmp_path: Path) -> None:
    async with (
        open_producer(NOBODY, "G") as producer,
        open_admin(NOBODY) as admin,
        open_pull_consumer(NOBODY, "G") as pull_consumer,
        open_push_consumer(NOBODY, PUSH, {}, Concurrently(ignore), directory=tmp_path) as push_consumer,
    ):
        pass
    await check_closed(producer, admin, pull_consumer, push_consumer)


def test_each_call_of_a_client_after_its_end_in_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_asyncio_client(NOBODY) as client:
            async with (
                client.producer("G") as producer,
                client.admin() as admin,
                client.pull_consumer("G") as pull_consumer,
                client.push_consumer(PUSH, {}, Concurrently(ignore), directory=tmp_path) as push_consumer,
            ):
                pass
            facades = (producer, admin, pull_consumer, push_consumer)
            await check_closed(*facades)
        await check_closed(*facades)
        for opened in (client.producer("G"), client.admin(), client.pull_consumer("G")):
            with pytest.raises(ClientClosed, match="gives no more clients"):
                await opened.__aenter__()

    asyncio.run(main())


def test_a_guest_outside_of_asyncio_says_so() -> None:
    async def main() -> None:
        async with open_asyncio_client(NOBODY):
            pass

    with pytest.raises(RuntimeError, match=r"^a Trio guest needs a running asyncio loop"):
        trio.run(main)
