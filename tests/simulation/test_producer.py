"""The producer against this project's brokers, in simulated worlds: what is sent, and what happens when things fail."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import attrs
import pytest
import trio

from rmq_actors.client.client_error import (
    BrokerRefused,
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    ClientTimeout,
    MessageRefused,
    SendFailed,
)
from rmq_actors.client.config import ClientConfig, ProducerConfig
from rmq_actors.client.producer import MessageQueueSelector, Producer, run_producer
from rmq_actors.client.send_result import LocalTransactionState, SendResult
from rmq_actors.embedding.cluster_protocol import Cluster
from rmq_actors.protocols.queue_selection import select_message_queue_by_hash
from rmq_actors.protocols.send_retries import SendStatus
from rmq_actors.store.config import BrokerRole
from rmq_actors.testing import SimCluster
from rmq_actors.testing.sim_cluster import SIM_STORE
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.body_compression import decompress_body
from rmq_actors.wire.headers.namesrv import WipeWritePermOfBrokerRequestHeader
from rmq_actors.wire.record import Message, StoredMessage
from rmq_actors.wire.remoting_command import FRAME_MAX_LENGTH_BYTES
from rmq_actors.wire.request_code import RequestCode
from sim_net import Partition
from tests.worlds.producer_story import produce_and_look

TOPIC = "Orders"
ONE = {"a": None}
ASYNC_STORE = attrs.evolve(SIM_STORE, broker_role=BrokerRole.ASYNC_MASTER)


def run(body: Callable[[SimCluster], Awaitable[Any]], follows: Any = None, **settings: Any) -> Any:
    """Run a body in a cluster with a name server: a pair, unless it says otherwise."""
    return SimCluster(follows or {"a": None, "b": "a"}, name_server=True, **settings).run(body)


def check_retriable(error: ClientError) -> None:
    assert error.retriable, error


def stored(cluster: Cluster, topic: str = TOPIC, name: str = "a") -> list[StoredMessage]:
    return [message for message in cluster.messages(name) if message.topic == topic]


# --- kinds of sends ---------------------------------------------------------------------------------------------------


def test_messages_are_stored_with_what_they_carry_and_their_ids_find_them() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer() as producer, cluster.admin() as admin:
            message = Message(TOPIC, b"one", flag=7, properties={"TAGS": "a", "KEYS": "k1 k2"})
            result = await producer.send(message)
            assert result.status is SendStatus.SEND_OK
            (found,) = stored(cluster)
            assert (found.body, found.flag, found.queue_id) == (b"one", 7, result.queue.queue_id)
            assert found.properties["TAGS"] == "a"
            assert found.properties["UNIQ_KEY"] == result.msg_id
            assert (await admin.message_by_id(result.offset_msg_id)).body == b"one"
            await trio.sleep(1)
            assert [each.body for each in await admin.messages_by_key(TOPIC, "k2")] == [b"one"]
            assert [each.body for each in await admin.messages_by_unique_id(TOPIC, result.msg_id)] == [b"one"]

    run(body)


def test_messages_go_round_the_queues_and_a_named_queue_or_a_selector_keeps_order() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer() as producer:
            results = [await producer.send(Message(TOPIC, b"x")) for _ in range(8)]
            assert sorted(result.queue.queue_id for result in results) == [0, 0, 1, 1, 2, 2, 3, 3]
            queues = await producer.queues_of(TOPIC)
            to_one = [await producer.send(Message(TOPIC, b"y"), queue=queues[2]) for _ in range(3)]
            assert [(result.queue, result.queue_offset) for result in to_one] == [(queues[2], 2 + n) for n in range(3)]
            chosen = {
                (
                    await producer.send_by_selector(Message(TOPIC, b"z"), select_message_queue_by_hash, "order-1")
                ).queue.queue_id
                for _ in range(4)
            }
            assert len(chosen) == 1

    run(body)


def test_a_queue_of_another_topic_takes_no_message() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer() as producer:
            message, other = Message(TOPIC, b"x"), MessageQueue(topic="Other", broker_name="broker-a", queue_id=0)
            calls: Sequence[Callable[[], Awaitable[object]]] = (
                lambda: producer.send(message, queue=other),
                lambda: producer.send_by_selector(message, lambda queues, message, argument: other, None),
                lambda: producer.send_batch([message, message], queue=other),
                lambda: producer.send_oneway(message, queue=other),
            )
            for call in calls:
                with pytest.raises(MessageRefused, match="topic Orders cannot be sent to a queue of topic Other"):
                    await call()
        assert not stored(cluster)
        assert not stored(cluster, "Other")

    run(body, ONE, store=ASYNC_STORE)


def test_a_selector_that_returns_no_queue_is_a_type_error_and_nothing_is_sent() -> None:
    async def body(cluster: SimCluster) -> None:
        async def selects(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
            return queues[0]

        async with cluster.producer() as producer:
            for selector, why in (
                (lambda queues, message, argument: None, "returns None and no MessageQueue$"),
                (lambda queues, message, argument: 3, "returns 3 and no MessageQueue$"),
                (selects, "selects .* and no MessageQueue: a selector is no async function"),
            ):
                chooses = cast("MessageQueueSelector[None]", selector)
                with pytest.raises(TypeError, match=why):
                    await producer.send_by_selector(Message(TOPIC, b"x"), chooses, None)
        assert not stored(cluster)

    run(body, ONE, store=ASYNC_STORE)


def test_a_batch_is_stored_as_a_whole_in_one_queue() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer() as producer:
            result = await producer.send_batch([Message(TOPIC, b"%d" % n, properties={"n": str(n)}) for n in range(5)])
            found = stored(cluster)
            assert [(each.body, each.properties["n"]) for each in found] == [(b"%d" % n, str(n)) for n in range(5)]
            assert {each.queue_id for each in found} == {result.queue.queue_id}
            assert [each.properties["UNIQ_KEY"] for each in found] == result.msg_id.split(",")
            assert len(result.offset_msg_id.split(",")) == 5

    run(body, ONE, store=ASYNC_STORE)


def test_long_bodies_are_compressed_one_way_messages_arrive_and_delayed_ones_come_later() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer() as producer:
            await producer.send(Message(TOPIC, b"x" * 5_000))
            (found,) = stored(cluster)
            assert len(found.body) < 100
            assert decompress_body(found.body, found.sys_flag, 10_000) == b"x" * 5_000
            await producer.send_oneway(Message(TOPIC, b"one way"))
            await producer.send(Message(TOPIC, b"later", properties={"DELAY": "2"}))
            await trio.sleep(1)
            assert [each.body for each in stored(cluster)][1:] == [b"one way"]
            await trio.sleep(6)
            assert [each.body for each in stored(cluster)][2:] == [b"later"]

    run(body, ONE, store=ASYNC_STORE)


def test_what_no_broker_would_take_is_refused_before_it_is_sent() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer(ProducerConfig("PG", max_message_size_bytes=100)) as producer:
            for message in (
                Message("a b", b"x"),
                Message(TOPIC, b""),
                Message(TOPIC, b"x" * 101),
                Message(TOPIC, b"x", properties={"a": "\x01"}),
            ):
                with pytest.raises(MessageRefused) as caught:
                    await producer.send(message)
                assert not caught.value.retriable
            with pytest.raises(MessageRefused, match="bytes: at most 100"):
                await producer.send_batch([Message(TOPIC, b"x" * 60)] * 2)
            with pytest.raises(MessageRefused, match="transaction_listener"):
                await producer.send_in_transaction(Message(TOPIC, b"x"))
        with pytest.raises(ClientClosed):
            await producer.send(Message(TOPIC, b"x"))
        with pytest.raises(ValueError, match="producer_group is 'DEFAULT_PRODUCER'"):
            async with cluster.producer("DEFAULT_PRODUCER"):
                pass

    run(body, ONE, store=ASYNC_STORE)


def test_a_message_that_fits_no_frame_is_refused_and_the_next_one_is_sent() -> None:
    async def body(cluster: SimCluster) -> None:
        longest = FRAME_MAX_LENGTH_BYTES
        config = ProducerConfig("PG", max_message_size_bytes=longest, compress_msg_body_over_howmuch_bytes=longest + 1)
        async with cluster.producer(config) as producer:
            message = Message(TOPIC, bytes(longest))
            for send in (producer.send, producer.send_oneway):
                with pytest.raises(MessageRefused, match=f"at most {longest} .*can be sent"):
                    await send(message)
            await producer.send(Message(TOPIC, b"x"))
            assert [each.body for each in stored(cluster)] == [b"x"]

    run(body, ONE, store=ASYNC_STORE)


def test_many_tasks_send_at_the_same_time_and_each_gets_its_own_answer() -> None:
    async def body(cluster: SimCluster) -> None:
        results = dict[int, str]()

        async def send(producer: Producer, number: int) -> None:
            results[number] = (await producer.send(Message(TOPIC, b"%d" % number))).msg_id

        async with cluster.producer() as producer, trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(send, producer, number)
        assert {each.properties["UNIQ_KEY"]: int(each.body) for each in stored(cluster)} == {
            msg_id: number for number, msg_id in results.items()
        }

    run(body)


# --- transactions -----------------------------------------------------------------------------------------------------


@attrs.define
class Listener:
    """Answers as it is told, by body; an exception is raised."""

    executes: dict[bytes, LocalTransactionState | Exception]
    checks: dict[bytes, LocalTransactionState | Exception] = attrs.field(factory=dict)
    asked: list[tuple[bytes, str]] = attrs.field(factory=list)

    async def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState:
        await trio.lowlevel.checkpoint()
        assert argument == "argument"
        return self._say(self.executes[message.body])

    async def check_local_transaction(self, message: StoredMessage, transaction_id: str) -> LocalTransactionState:
        await trio.lowlevel.checkpoint()
        self.asked.append((message.body, transaction_id))
        return self._say(self.checks[message.body])

    def _say(self, answer: LocalTransactionState | Exception) -> LocalTransactionState:
        if isinstance(answer, Exception):
            raise answer
        return answer


COMMIT, ROLLBACK = LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE
UNKNOW = LocalTransactionState.UNKNOW


def test_a_transaction_is_committed_or_rolled_back_and_what_is_not_known_is_asked_for() -> None:
    long = b"x" * 5_000
    listener = Listener(
        {b"commit": COMMIT, b"rollback": ROLLBACK, b"later": UNKNOW, b"raises": ValueError("mine"), long: UNKNOW},
        {b"later": COMMIT, b"raises": ROLLBACK, long: COMMIT},
    )

    async def body(cluster: SimCluster) -> None:
        async with cluster.producer("TG", transaction_listener=listener) as producer:
            ids = dict[bytes, str]()
            for text, state in ((b"commit", COMMIT), (b"rollback", ROLLBACK), (b"later", UNKNOW), (long, UNKNOW)):
                result = await producer.send_in_transaction(Message(TOPIC, text), "argument")
                assert result.local_transaction_state is state
                ids[text] = result.send_result.msg_id
            with pytest.raises(ValueError, match="mine"):
                await producer.send_in_transaction(Message(TOPIC, b"raises"), "argument")
            await trio.sleep(1)
            assert [each.body for each in stored(cluster)] == [b"commit"]
            # transactionTimeOut is 6 s, transactionCheckInterval 60 s.
            await trio.sleep(70)
            assert [each.body for each in stored(cluster)][1:2] == [b"later"]
            assert len(stored(cluster)) == 3
            assert [text for text, _ in listener.asked] == [b"later", long, b"raises"]
            assert dict(listener.asked)[b"later"] == ids[b"later"]

    run(body, ONE, store=ASYNC_STORE)


def test_a_listener_that_returns_no_state_is_not_known_and_the_producer_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    forgotten: Any = None
    listener = Listener({b"forgets": forgotten}, {b"forgets": forgotten})

    async def body(cluster: SimCluster) -> None:
        async with cluster.producer("TG", transaction_listener=listener) as producer:
            result = await producer.send_in_transaction(Message(TOPIC, b"forgets"), "argument")
            assert result.local_transaction_state is UNKNOW
            await trio.sleep(70)
            assert len(listener.asked) == 1
            assert not stored(cluster)
            listener.checks[b"forgets"] = COMMIT
            await trio.sleep(70)
            assert [each.body for each in stored(cluster)] == [b"forgets"]
            await producer.send(Message(TOPIC, b"goes on"))

    run(body, ONE, store=ASYNC_STORE)
    for method in ("execute_local_transaction", "check_local_transaction"):
        assert f"{method} returned a NoneType, and no LocalTransactionState" in caplog.text


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_broker_that_fails_is_avoided_at_the_retry() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer() as producer:
            queues = await producer.queues_of("BenchmarkTest")
            assert {queue.broker_name for queue in queues} == {"broker-a", "broker-b"}
            await producer.send(Message("BenchmarkTest", b"warm"), queue=queues[0])
            await cluster.kill("a")
            results = [await producer.send(Message("BenchmarkTest", b"x")) for _ in range(10)]
            assert {result.queue.broker_name for result in results} == {"broker-b"}
            with pytest.raises(SendFailed) as caught:
                await producer.send(Message("BenchmarkTest", b"x"), queue=queues[0])
            assert isinstance(caught.value.__cause__, BrokerUnreachable)
            assert caught.value.brokers == ("broker-a",)

    run(body, {"a": None, "b": None}, store=ASYNC_STORE)


def test_a_refusal_is_raised_with_its_code() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer() as producer:
            queue = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=99)
            await producer.send(Message(TOPIC, b"make the topic"))
            with pytest.raises(BrokerRefused, match="request queueId") as caught:
                await producer.send(Message(TOPIC, b"x"), queue=queue)
            assert caught.value.code == 1

    run(body, ONE, store=ASYNC_STORE)


def test_a_status_says_that_no_slave_has_the_message() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer() as producer:
            await producer.send(Message(TOPIC, b"both"))
            await cluster.kill("b")
            await trio.sleep(1)
            assert (await producer.send(Message(TOPIC, b"one"))).status is SendStatus.SLAVE_NOT_AVAILABLE

    run(body)


def test_a_send_that_was_made_has_failed_when_its_master_leaves_the_routes_before_the_next_attempt() -> None:
    async def body(cluster: SimCluster) -> None:
        config = ProducerConfig("PG", send_msg_timeout_ms=60_000, send_msg_max_timeout_per_request_ms=40_000)
        failures = list[SendFailed]()

        async def fails(producer: Producer) -> None:
            with pytest.raises(SendFailed) as caught:
                await producer.send(Message(TOPIC, b"y"))
            failures.append(caught.value)

        async with cluster.producer(config) as producer:
            await producer.send(Message(TOPIC, b"x"))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fails, producer)
                while len(stored(cluster, name="b")) < 2:
                    await trio.sleep(0.0001)
                cluster.partition_clients("a")
                await cluster.kill("a")
        assert failures[0].brokers == ("broker-a",)
        assert isinstance(failures[0].__cause__, BrokerUnreachable)

    run(body, invariants=())


def test_the_first_message_of_a_topic_goes_to_a_master_that_is_back_at_once() -> None:
    """Its route is that of the topic that it is made after: a send asked for its own alone, which there is none of."""

    async def body(cluster: SimCluster) -> None:
        async with cluster.producer() as producer:
            await producer.queues_of(TOPIC)
            await cluster.kill("a")
            await trio.sleep(0.2)  # the name server knows
            with pytest.raises(SendFailed, match="no master of broker-a is known"):
                await producer.send(Message(TOPIC, b"x"))
            await cluster.start("a")
            await cluster.wait_until_registered()
            assert (await producer.send(Message(TOPIC, b"x"))).status is SendStatus.SEND_OK

    run(body, store=ASYNC_STORE)


def test_what_is_stored_is_told_when_its_master_leaves_the_routes_before_the_next_attempt() -> None:
    async def body(cluster: SimCluster) -> None:
        config = ProducerConfig("PG", send_msg_timeout_ms=60_000, retry_another_broker_when_not_store_ok=True)
        results = list[SendResult]()

        async def send(producer: Producer) -> None:
            results.append(await producer.send(Message(TOPIC, b"y")))

        async with cluster.client() as client, run_producer(client, config) as producer:
            await producer.send(Message(TOPIC, b"x"))
            heal = Partition(0.0, 1e9, "a", "b").begin(cluster.world)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send, producer)
                await trio.sleep(1)
                deadline_s = trio.current_time() + 1
                wipe = WipeWritePermOfBrokerRequestHeader("broker-a")
                await client.routes.ask_name_server(RequestCode.WIPE_WRITE_PERM_OF_BROKER, wipe, deadline_s=deadline_s)
                await client.routes.update(TOPIC, deadline_s)
            heal()
        assert results[0].status is SendStatus.FLUSH_SLAVE_TIMEOUT

    run(body, invariants=())


def test_messages_that_wait_for_no_slave_wait_for_none_in_a_batch_either() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer() as producer:
            lax, strict = Message(TOPIC, b"x", properties={"WAIT": "false"}), Message(TOPIC, b"x")
            await producer.send(strict)
            await cluster.kill("b")
            await trio.sleep(1)
            assert (await producer.send(lax)).status is SendStatus.SEND_OK
            assert (await producer.send_batch([lax, lax])).status is SendStatus.SEND_OK
            assert [each.properties["WAIT"] for each in stored(cluster)[-2:]] == ["false"] * 2
            assert (await producer.send_batch([strict, strict])).status is SendStatus.SLAVE_NOT_AVAILABLE

    run(body)


@pytest.mark.parametrize("timeout_ms", [1, 50, 1_000, 3_000])
def test_every_call_ends_within_its_time_out_whatever_is_silent(timeout_ms: int) -> None:
    async def body(cluster: SimCluster) -> None:
        async def within(call: Callable[[], Awaitable[object]]) -> None:
            begun_s = trio.current_time()
            with pytest.raises(ClientError) as caught:
                await call()
            assert trio.current_time() - begun_s <= timeout_ms / 1000 + 1e-9, caught.value
            assert caught.value.retriable, caught.value

        async with cluster.producer() as known, cluster.producer() as fresh:
            await known.send(Message(TOPIC, b"x"))
            cluster.partition_clients("a")
            message, listed = Message(TOPIC, b"x"), [Message(TOPIC, b"x")]
            await within(functools.partial(known.send, message, timeout_ms=timeout_ms))
            await within(functools.partial(known.send_batch, listed, timeout_ms=timeout_ms))
            await within(functools.partial(fresh.send, message, timeout_ms=timeout_ms))
            cluster.partition_clients("namesrv")
            await within(functools.partial(known.send, message, timeout_ms=timeout_ms))
            await within(functools.partial(known.send, Message("Other", b"x"), timeout_ms=timeout_ms))
            await within(functools.partial(known.queues_of, "Another", timeout_ms=timeout_ms))

    run(body, ONE, store=ASYNC_STORE)


def test_a_limit_for_each_request_leaves_time_for_another_broker() -> None:
    async def body(cluster: SimCluster) -> None:
        config = ProducerConfig("PG", send_msg_max_timeout_per_request_ms=500)
        async with cluster.producer(config) as producer:
            await producer.queues_of("BenchmarkTest")
            for _ in range(4):
                await producer.send(Message("BenchmarkTest", b"connected"))
            cluster.partition_clients("a")
            for _ in range(8):
                assert (await producer.send(Message("BenchmarkTest", b"x"))).queue.broker_name == "broker-b"

    run(body, {"a": None, "b": None}, store=ASYNC_STORE)


def test_sends_go_on_at_the_new_master_after_a_fail_over() -> None:
    async def body(cluster: SimCluster) -> None:
        async with cluster.producer() as producer:
            await producer.send(Message(TOPIC, b"before"))
            await cluster.kill("a")
            await cluster.promote("b")
            with trio.fail_after(10):
                while True:
                    try:
                        await producer.send(Message(TOPIC, b"after"))
                        break
                    except ClientError as error:
                        check_retriable(error)
                        await trio.sleep(0.5)
            assert b"after" in [each.body for each in stored(cluster, name="b")]
            await cluster.start("a")

    run(body, invariants=())


@pytest.mark.parametrize("seed", range(4))
def test_what_is_acknowledged_survives_crashes_and_partitions_with_sync_master(seed: int) -> None:
    acknowledged = dict[bytes, int]()

    async def produce(producer: Producer, number: int, over: trio.Event) -> None:
        count = 0
        while not over.is_set():
            body = b"%d-%d" % (number, count)
            begun_s = trio.current_time()
            try:
                result = await producer.send(Message(TOPIC, body))
            except ClientError as error:
                check_retriable(error)
                await trio.sleep(0.2)
            else:
                if result.status is SendStatus.SEND_OK:
                    acknowledged[body] = acknowledged.get(body, 0) + 1
                count += 1
            assert trio.current_time() - begun_s <= 3.0 + 0.2 + 1e-9

    async def body(cluster: SimCluster) -> list[bytes]:
        over = trio.Event()
        async with cluster.producer() as producer, trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(produce, producer, number, over)
            for _ in range(2):
                await trio.sleep(2 + cluster.world.nodes["a"].entropy.random())
                await cluster.restart("a")
                await trio.sleep(2)
                cluster.partition("a", "b")
                await trio.sleep(2)
                cluster.heal()
                cluster.partition_clients("a")
                await trio.sleep(1)
                cluster.heal()
            await trio.sleep(5)
            over.set()
        await cluster.wait_until_connected()
        await cluster.wait_until_replicated()
        bodies = [each.body for each in stored(cluster)]
        assert bodies == [each.body for each in stored(cluster, name="b")]
        return bodies

    bodies = run(body, seed=seed)
    assert len(acknowledged) > 50
    assert acknowledged.keys() <= set(bodies)


# --- one body, two worlds ---------------------------------------------------------------------------------------------


def test_one_body_produces_in_a_simulated_world() -> None:
    assert run(produce_and_look) == [b"%d" % number for number in range(7)]


def test_a_cluster_without_a_name_server_has_no_clients() -> None:
    async def body(cluster: SimCluster) -> None:
        with pytest.raises(ValueError, match="name_server=True"):
            async with cluster.producer():
                pass

    SimCluster(ONE, ASYNC_STORE).run(body)


def test_settings_of_the_client_are_taken_but_for_addresses() -> None:
    async def body(cluster: SimCluster) -> None:
        config = ClientConfig("elsewhere:1", instance_name="mine")
        async with cluster.producer(config=config) as producer:
            assert producer.client_id.endswith("@mine")
            await producer.send(Message(TOPIC, b"x"))

    run(body, ONE, store=ASYNC_STORE)


def test_a_time_out_is_an_error_of_its_own() -> None:
    assert issubclass(ClientTimeout, ClientError)
    assert ClientTimeout.retriable
