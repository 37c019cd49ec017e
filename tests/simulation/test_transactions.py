"""Transactions at a broker: prepared, ended, asked about, given up, and taken up again."""

from __future__ import annotations

import pytest
import trio

from rmq_actors.store.config import BrokerRole, FlushDiskType
from rmq_actors.testing.thin_client import Prepared, ThinClient, end_request
from rmq_actors.wire.dispatch_request import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.transactions import ResumeCheckHalfMessageRequestHeader
from rmq_actors.wire.message_id import create_message_id
from rmq_actors.wire.remoting_command import RemotingCommand, encode_command
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.worlds.transaction_world import COMMIT, ROLLBACK, TOPIC, UNKNOWN, TransactionWorld

SUCCESS = ResponseCode.SUCCESS


def resume_request(msg_id: str) -> RemotingCommand:
    header = ResumeCheckHalfMessageRequestHeader(msg_id)
    return RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, encode_header(header))


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_a_message_is_seen_once_it_is_committed_and_never_if_it_is_rolled_back(flush: FlushDiskType) -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            first = await world.prepare(client, b"commit", queue_id=0, flag=7)
            second = await world.prepare(client, b"rollback")
            assert (first.queue_offset, second.queue_offset) == (0, 1)
            await trio.sleep(0.1)
            assert world.bodies() == []
            assert (await client.end(first, COMMIT)).code == SUCCESS
            assert (await client.end(second, ROLLBACK)).code == SUCCESS
            await trio.sleep(0.1)
            (message,) = world.records(TOPIC)
            assert (message.body, message.sys_flag, message.flag) == (b"commit", COMMIT, 7)
            assert message.prepared_transaction_offset == first.offset
            # As RocketMQ leaves them on the disk.
            assert message.properties == {
                "UNIQ_KEY": "commit",
                "TRAN_MSG": "true",
                "PGROUP": "PG",
                "CLUSTER": "DefaultCluster",
                "REAL_TOPIC": TOPIC,
                "REAL_QID": "0",
            }
            half = world.records(HALF_TOPIC)[0]
            assert (half.body, half.queue_id, half.sys_flag, half.properties) == (b"commit", 0, 0, message.properties)
            ops = world.records(OP_HALF_TOPIC)
            assert [(op.body, dict(op.properties)) for op in ops] == [
                (b"0", {"WAIT": "true", "TAGS": "d"}),
                (b"1", {"WAIT": "true", "TAGS": "d"}),
            ]
            await trio.sleep(5)
            assert world.asked == []
            assert world.bodies() == [b"commit"]
            assert world.done_to() == (2, 2)

    TransactionWorld.of(flush_disk_type=flush).run(use)


def test_a_producer_is_asked_and_its_answer_counts() -> None:
    async def use(world: TransactionWorld) -> None:
        world.answers = {b"yes": COMMIT, b"no": ROLLBACK}
        async with world.producer() as client:
            await world.prepare(client, b"yes")
            await world.prepare(client, b"no")
            await trio.sleep(4)
            assert world.bodies() == [b"yes"]
            assert [question.message.body for question in world.asked] == [b"yes", b"no"]
            question = world.asked[0]
            assert (question.message.topic, question.message.queue_id) == (TOPIC, 0)
            assert question.message.properties["TRANSACTION_CHECK_TIMES"] == "1"
            assert question.header.transaction_id == question.header.msg_id == "yes"
            # The half messages were stored again; these two were ended.
            assert [message.body for message in world.records(HALF_TOPIC)] == [b"yes", b"no", b"yes", b"no"]
            assert sorted(op.body for op in world.records(OP_HALF_TOPIC)) == [b"2", b"3"]
            assert world.done_to() == (4, 2)
            assert world.controller().store.transactions.open_count == 0

    TransactionWorld.of().run(use)


def test_what_nobody_ends_is_given_up_after_so_many_checks_and_can_be_resumed() -> None:
    async def use(world: TransactionWorld) -> None:
        world.answers = {b"unsure": UNKNOWN}
        async with world.producer() as client:
            await world.prepare(client, b"unsure")
            await trio.sleep(12)
            assert len(world.asked) == 3
            (given_up,) = world.records(CHECK_MAX_TIME_TOPIC)
            assert given_up.properties["TRANSACTION_CHECK_TIMES"] == "3"
            assert given_up.properties["REAL_TOPIC"] == TOPIC
            assert world.service().counts == {"committed": 0, "rolled_back": 0, "asked": 3, "given_up": 1}
            # It has ended: its producer cannot end it any more.
            assert (await client.end(world.asked[-1].prepared, COMMIT)).code == ResponseCode.SYSTEM_ERROR
            world.answers = {b"unsure": COMMIT}
            msg_id = create_message_id(given_up.store_host, given_up.physical_offset)
            assert (await client.ask(resume_request(msg_id))).code == SUCCESS
            await trio.sleep(0.1)
            again = await client.ask(resume_request(msg_id))
            assert (again.code, "is checked again already" in (again.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
            await trio.sleep(4)
            assert world.bodies() == [b"unsure"]
            assert world.asked[-1].message.properties["TRANSACTION_CHECK_TIMES"] == "1"

    TransactionWorld.of().run(use)


def test_only_what_was_given_up_is_resumed() -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            _, sent = await client.send(TOPIC, b"plain", properties={"REAL_TOPIC": "Other", "REAL_QID": "0"})
            for msg_id in (sent.msg_id, "", "F" * 32, "zz"):  # type: ignore[union-attr]
                answer = await client.ask(resume_request(msg_id))
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert (answer.remark or "").startswith("Exception was thrown when putting message back"), answer
            assert world.records(HALF_TOPIC) == []

    TransactionWorld.of().run(use)


def test_an_end_must_name_the_half_message_as_it_is() -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            half = await world.prepare(client, b"x")
            _, plain = await client.send(
                TOPIC, b"plain", properties={"PGROUP": "PG", "REAL_TOPIC": "Secret", "REAL_QID": "0"}
            )
            place = Prepared(plain.queue_offset, half.offset + 10_000)  # type: ignore[union-attr]
            forged = Prepared(0, world.records(TOPIC)[0].physical_offset)
            for prepared, group, remark in (
                (place, "PG", "Find prepared transaction message failed"),
                (Prepared(0, half.offset + 1), "PG", "Find prepared transaction message failed"),
                (Prepared(0, -1), "PG", "Find prepared transaction message failed"),
                (forged, "PG", "Find prepared transaction message failed"),
                (half, "Other", "The producer group wrong"),
                (Prepared(1, half.offset), "PG", "The transaction state table offset wrong"),
            ):
                for state in (COMMIT, ROLLBACK):
                    answer = await client.end(prepared, state, group)
                    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
            assert (world.bodies("Secret"), world.records(OP_HALF_TOPIC)) == ([], [])
            assert (await client.end(half, COMMIT)).code == SUCCESS

    TransactionWorld.of().run(use)


def test_an_end_that_comes_again_changes_nothing_and_says_how_it_was() -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            half, other = await world.prepare(client, b"x"), await world.prepare(client, b"y")
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(client.end, half, COMMIT)
            await trio.sleep(0.1)
            assert (await client.end(half, COMMIT)).code == SUCCESS
            refused = await client.end(half, ROLLBACK)
            assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "The transaction has ended already")
            assert (await client.end(other, ROLLBACK)).code == SUCCESS
            assert (await client.end(other, COMMIT)).code == ResponseCode.SYSTEM_ERROR
            await trio.sleep(3)
            assert world.bodies() == [b"x"]

    TransactionWorld.of().run(use)


def test_a_commit_that_crosses_a_check_is_one_message() -> None:
    """RocketMQ commits the half message that was asked about, and asks again about the one that it stored for that."""

    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            half = await world.prepare(client, b"late")
            with trio.fail_after(10):
                while not world.asked:
                    await trio.sleep(0.01)
            assert (await client.end(half, COMMIT)).code == SUCCESS
            assert (await client.end(world.asked[0].prepared, COMMIT)).code == SUCCESS
            world.answers = {b"late": COMMIT}
            await trio.sleep(5)
            assert world.bodies() == [b"late"]
            assert len(world.asked) == 1

    TransactionWorld.of().run(use)


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
def test_an_end_that_comes_again_ends_no_transaction_of_another_topic(state: int) -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            same = {"UNIQ_KEY": "K"}
            _, others = await client.prepare("Victim", b"other's", properties=same)
            _, mine = await client.prepare("Mine", b"mine", properties=same)
            assert isinstance(others, Prepared)
            assert isinstance(mine, Prepared)
            for _ in range(2):
                await client.end(mine, state)
                await trio.sleep(0.1)
            assert world.bodies("Victim") == []
            assert world.controller().store.transactions.is_open(others.offset)
            assert (await client.end(others, COMMIT)).code == SUCCESS
            await trio.sleep(0.1)
            assert world.bodies("Victim") == [b"other's"]

    TransactionWorld.of(settings={"transaction_time_out_ms": 60_000}).run(use)


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("pause_s", [0, 0.1])
def test_an_end_that_comes_again_does_not_end_what_a_retried_send_has_left(state: int, pause_s: float) -> None:
    """The answer to the first send was lost: the client sends again, with the same key. Dispatched or not."""

    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            retried = await world.prepare(client, b"x")
            await trio.sleep(0.1)
            half = await world.prepare(client, b"x")
            for _ in range(3):
                await client.end(half, state)
                await trio.sleep(pause_s)
            await trio.sleep(0.1)
            assert world.bodies() == ([b"x"] if state == COMMIT else [])
            assert world.controller().store.transactions.is_open(retried.offset)

    TransactionWorld.of(settings={"transaction_time_out_ms": 60_000}).run(use)


def test_a_check_ends_no_half_message_of_another_topic_that_has_the_same_key() -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            immune = {"UNIQ_KEY": "K", "CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}
            _, others = await client.prepare("Victim", b"other's", properties=immune, born_timestamp=world.now_ms)
            assert isinstance(others, Prepared)
            await client.prepare("Mine", b"mine", properties={"UNIQ_KEY": "K"}, born_timestamp=world.now_ms)
            await trio.sleep(8)
            # Asked about three times, and given up.
            assert world.bodies(CHECK_MAX_TIME_TOPIC) == [b"mine"]
            (given_up,) = world.records(CHECK_MAX_TIME_TOPIC)
            msg_id = create_message_id(given_up.store_host, given_up.physical_offset)
            assert (await client.ask(resume_request(msg_id))).code == SUCCESS
            assert (await client.end(others, COMMIT)).code == SUCCESS
            await trio.sleep(0.1)
            assert world.bodies("Victim") == [b"other's"]

    TransactionWorld.of().run(use)


def test_an_end_finds_its_half_message_stored_again_among_others_with_its_key() -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            half = await world.prepare(client, b"first", properties={"UNIQ_KEY": "K"})
            immune = {"UNIQ_KEY": "K", "CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}
            await world.prepare(client, b"second", properties=immune)
            while not world.asked:
                await trio.sleep(0.1)
            await trio.sleep(0.1)
            assert (await client.end(half, COMMIT)).code == SUCCESS
            await trio.sleep(0.1)
            assert world.bodies() == [b"first"]

    TransactionWorld.of().run(use)


@pytest.mark.parametrize("key", ["K", ""])
def test_a_check_stores_again_the_half_message_that_it_is_about(key: str) -> None:
    """An older one is immune, and has the same key, or none of them has one."""

    async def use(world: TransactionWorld) -> None:
        world.answers = {b"second": COMMIT, b"given up": UNKNOWN}
        table = world.controller().store.transactions
        async with world.producer() as client:
            immune = await world.prepare(
                client, b"immune", properties={"UNIQ_KEY": key, "CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}
            )
            await world.prepare(client, b"second", properties={"UNIQ_KEY": key})
            await world.prepare(client, b"given up", properties={"UNIQ_KEY": key})
            await trio.sleep(10)
            assert [each.physical_offset for each in table.open_transactions()] == [immune.offset]
            assert [question.message.body for question in world.asked].count(b"second") == 1
            assert all("TRAN_ORIGIN_OFFSET" not in question.message.properties for question in world.asked)
            assert world.bodies(CHECK_MAX_TIME_TOPIC) == [b"given up"]
            assert (await client.end(immune, COMMIT)).code == SUCCESS
            await trio.sleep(0.1)
            assert world.bodies() == [b"second", b"immune"]
            assert all("TRAN_ORIGIN_OFFSET" not in record.properties for record in world.records(TOPIC))

    TransactionWorld.of().run(use)


@pytest.mark.parametrize("key", ["K", ""])
def test_an_end_finds_its_half_message_stored_again_after_a_restart(key: str) -> None:
    """It crosses a check, and the broker is killed before it comes: only the log tells what was stored again."""

    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            halves = [await world.prepare(client, body, properties={"UNIQ_KEY": key}) for body in (b"a", b"b")]
            while len(world.asked) < 2:
                await trio.sleep(0.1)
            await trio.sleep(0.1)
        world.servers.nodes["a-0"].kill()
        world.servers.boot("a-0")
        await world.servers.converge(10)
        async with world.producer("p-2", group="other") as client:
            for half in reversed(halves):
                assert (await client.end(half, COMMIT)).code == SUCCESS
            await trio.sleep(0.1)
            assert world.bodies() == [b"b", b"a"]
            assert world.controller().store.transactions.open_count == 0

    TransactionWorld.of(settings={"transaction_check_max": 100}).run(use)


def test_unknown_is_no_end_and_has_no_answer() -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            half = await world.prepare(client, b"x")
            with trio.move_on_after(2):
                await client.end(half, UNKNOWN)
                raise AssertionError("answered")
            assert (await client.end(half, COMMIT)).code == SUCCESS

    TransactionWorld.of().run(use)


def test_a_message_is_immune_for_as_long_as_it_says_and_others_are_asked_about_meanwhile() -> None:
    async def use(world: TransactionWorld) -> None:
        world.answers = {b"immune": COMMIT, b"other": COMMIT}
        async with world.producer() as client:
            await world.prepare(client, b"immune", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "20"})
            await world.prepare(client, b"other")
            await trio.sleep(15)
            assert world.bodies() == [b"other"]
            assert world.done_to() == (0, 0)
            await trio.sleep(8)
            assert world.bodies() == [b"other", b"immune"]
            # RocketMQ would have counted a check in each round, and given it up unasked.
            assert world.asked[-1].message.properties["TRANSACTION_CHECK_TIMES"] == "1"
            assert world.done_to() == (4, 2)

    TransactionWorld.of().run(use)


def test_a_clock_that_is_set_back_puts_no_check_off() -> None:
    """All clocks were an hour ahead when the message was stored, and when a round found it not due yet."""

    async def use(world: TransactionWorld) -> None:
        world.answers = {b"ahead": COMMIT}
        clocks = [node.wall_clock for node in world.servers.nodes.values()]
        for clock in clocks:
            clock.jump(3_600_000)
        async with world.producer() as client:
            await world.prepare(client, b"ahead")
            await trio.sleep(2)  # a round at least
            assert world.asked == []
            for clock in clocks:
                clock.jump(-3_600_000)
            await trio.sleep(4)
            assert world.bodies() == [b"ahead"]

    TransactionWorld.of(settings={"transaction_time_out_ms": 4_000}).run(use)


def test_nothing_is_counted_or_given_up_while_nobody_can_be_asked() -> None:
    async def use(world: TransactionWorld) -> None:
        world.answers = {b"x": COMMIT}
        async with world.producer() as client:
            await world.prepare(client, b"x")
        await trio.sleep(60)
        assert len(world.records(HALF_TOPIC)) == 1
        async with world.producer("p-2"):
            await trio.sleep(3)
            assert world.bodies() == [b"x"]

    TransactionWorld.of().run(use)


def test_what_is_too_old_is_asked_about_once_and_then_given_up() -> None:
    async def use(world: TransactionWorld) -> None:
        hours_ms = 73 * 3_600_000
        async with world.producer() as client:
            code, _ = await client.prepare(
                TOPIC, b"old", properties={"UNIQ_KEY": "old"}, born_timestamp=world.now_ms - hours_ms
            )
            assert code == SUCCESS
            await trio.sleep(5)
            assert len(world.asked) == 1
            assert world.bodies(CHECK_MAX_TIME_TOPIC) == [b"old"]

    TransactionWorld.of().run(use)


def test_each_producer_of_a_group_is_asked_in_turn() -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client, world.producer("p-2"), world.producer("p-3", group="Other"):
            for number in range(6):
                world.answers[b"%d" % number] = COMMIT
                await world.prepare(client, b"%d" % number)
            await trio.sleep(4)
            assert sorted(question.producer for question in world.asked) == ["p-1"] * 3 + ["p-2"] * 3

    TransactionWorld.of().run(use)


def test_a_producer_that_takes_its_questions_slowly_is_asked_them_all_in_one_round() -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            for number in range(40):
                body = b"%d" % number + bytes(4_000)
                world.answers[body] = ROLLBACK
                await world.prepare(client, body, properties={"UNIQ_KEY": f"{number}"})
            await trio.sleep(4.5)
            asked = [question.message.body for question in world.asked]
            assert sorted(asked) == sorted(world.answers)

    TransactionWorld.of(
        settings={"transaction_check_interval_ms": 4_000}, mapped_file_size_commit_log_bytes=1 << 20
    ).run(use)


@pytest.mark.parametrize(("connections", "within_s"), [(1, 7), (20, 16)])
def test_producers_of_many_groups_that_do_not_read_hold_a_round_up_briefly(connections: int, within_s: float) -> None:
    async def use(world: TransactionWorld) -> None:
        address = world.servers.brokers["a-0"].address
        host, port = address.rsplit(":", 1)
        groups = [f"G{number}" for number in range(20)]
        streams = [await trio.open_tcp_stream(host, int(port)) for _ in range(connections)]

        async def join(stream: trio.SocketStream, number: int) -> None:
            async def tell(request: RemotingCommand) -> RemotingCommand:
                await stream.send_all(encode_command(request))
                return request

            await ThinClient(tell, f"silent-{number}").heartbeat(producers=groups[number::connections])

        async with world.producer(group="Well") as client:
            for number, stream in enumerate(streams):
                await join(stream, number)
            # One question is more than the connection takes, the second one is not sent.
            for group in [*groups, *groups, "Well"]:
                body = group.encode() + bytes(0 if group == "Well" else 200_000)
                properties = {"UNIQ_KEY": group, "PGROUP": group, "TRAN_MSG": "true"}
                await client.send(TOPIC, body, properties=properties, sys_flag=4, born_timestamp=world.now_ms)
            await trio.sleep(within_s)
            assert [question.message.body for question in world.asked][:1] == [b"Well"]
        for stream in streams:
            await stream.aclose()

    # All are due in the same round.
    settings = {"transaction_check_interval_ms": 5_000}
    TransactionWorld.of(settings=settings, mapped_file_size_commit_log_bytes=1 << 24).run(use)


def test_a_slave_ends_no_transactions() -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer(node="a-1") as client:
            assert (await client.end(Prepared(0, 0), COMMIT)).code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert (await client.ask(resume_request("0" * 32))).code == ResponseCode.SLAVE_NOT_AVAILABLE

    TransactionWorld.of(1).run(use)


def test_a_broker_may_refuse_transactions() -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            code, remark = await client.prepare(TOPIC, b"x")
            assert code == ResponseCode.NO_PERMISSION
            assert str(remark).endswith("sending transaction message is forbidden")
            assert (await client.send(TOPIC, b"plain"))[0] == SUCCESS

    TransactionWorld.of(settings={"reject_transaction_message": True}).run(use)


@pytest.mark.parametrize("sys_flag", [4, 8, 12])
def test_only_a_message_that_is_prepared_may_say_that_it_is_in_a_transaction(sys_flag: int) -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            half = await world.prepare(client, b"x")
            forged = {"PGROUP": "PG", "UNIQ_KEY": "x"}
            code, remark = await client.send(TOPIC, b"forged", properties=forged, sys_flag=sys_flag)
            assert (code, "system flag" in str(remark)) == (ResponseCode.MESSAGE_ILLEGAL, True)
            again = {**forged, "TRANSACTION_CHECK_TIMES": "0", "TRAN_PREPARED_QUEUE_OFFSET": "0"}
            assert (await client.prepare(TOPIC, b"another's", properties=again))[0] == SUCCESS
            await trio.sleep(0.1)
            store = world.controller().store
            assert store.transactions.is_open(half.offset)
            assert "TRANSACTION_CHECK_TIMES" not in world.records(HALF_TOPIC)[1].properties

    TransactionWorld.of().run(use)


def test_a_delayed_message_is_prepared_without_its_delay() -> None:
    """RocketMQ delays the half message itself, and so loses where it is to go."""

    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            half = await world.prepare(client, b"x", properties={"DELAY": "3"})
            assert (await client.end(half, COMMIT)).code == SUCCESS
            await trio.sleep(0.1)
            assert world.bodies() == [b"x"]

    TransactionWorld.of().run(use)


def test_a_retry_of_what_was_committed_is_no_transaction() -> None:
    """Consumers up to 4.6.0 send a message back with all its properties, TRAN_MSG among them."""

    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            retried = {"TRAN_MSG": "true", "DELAY": "0", "REAL_TOPIC": TOPIC, "REAL_QID": "0"}
            assert (await client.send("%RETRY%CG", b"x", properties=retried, reconsume_times=1, sys_flag=4))[
                0
            ] == SUCCESS

    TransactionWorld.of().run(use)


def test_the_next_master_asks_about_what_the_last_one_has_left() -> None:
    async def use(world: TransactionWorld) -> None:
        servers = world.servers
        world.answers = {b"asked": COMMIT}
        async with world.producer() as client:
            committed = await world.prepare(client, b"committed")
            rolled_back = await world.prepare(client, b"rolled back")
            await world.prepare(client, b"asked")
            assert (await client.end(committed, COMMIT)).code == SUCCESS
            assert (await client.end(rolled_back, ROLLBACK)).code == SUCCESS
        servers.nodes["a-0"].kill()
        assert await servers.change_role("a-1", BrokerRole.ASYNC_MASTER) is None
        async with world.producer("p-2", node="a-1"):
            await trio.sleep(5)
            assert world.bodies(node="a-1") == [b"committed", b"asked"]
            assert [question.message.body for question in world.asked] == [b"asked"]
            assert world.done_to("a-1") == (4, 3)

    TransactionWorld.of(1).run(use)


def test_no_transaction_is_checked_by_a_master_that_has_become_a_slave() -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            await world.prepare(client, b"x")
            await world.servers.wait_replicated("a-1")
            assert await world.servers.change_role("a-1", BrokerRole.ASYNC_MASTER) is None
            to = {"ha_master_address": world.controller("a-1").ha_address}
            assert await world.servers.change_role("a-0", BrokerRole.SLAVE, **to) is None
            end = world.controller().store.commit_log.max_offset
            world.asked.clear()
            await trio.sleep(10)
            assert world.asked == []
            assert world.controller().store.commit_log.max_offset == end

    TransactionWorld.of(1).run(use)


def test_an_end_is_as_safe_as_a_message() -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            half, other = await world.prepare(client, b"x"), await world.prepare(client, b"y")
            world.servers.nodes["a-1"].pause()
            began = trio.current_time()
            # Stored, not confirmed: success, as RocketMQ says it.
            assert (await client.end(half, COMMIT)).code == SUCCESS
            assert 0.5 <= trio.current_time() - began < 0.7
            assert (await client.end(other, ROLLBACK)).code == SUCCESS
            world.servers.nodes["a-1"].resume()

    TransactionWorld.of(1, slave_timeout_ms=500).run(use)


def test_a_half_message_in_the_pool_is_ended_once_it_is_committed_to_the_log() -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            half = await world.prepare(client, b"x")
            assert (await client.end(half, COMMIT)).code == SUCCESS
            await trio.sleep(1)
            assert world.bodies() == [b"x"]

    TransactionWorld.of(transient_store_pool_enable=True).run(use)


def test_the_commit_is_in_the_log_before_its_op_message() -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            half = await world.prepare(client, b"x")
            assert (await client.end(half, COMMIT)).code == SUCCESS
            await trio.sleep(0.1)
            (op,) = world.records(OP_HALF_TOPIC)
            assert half.offset < world.records(TOPIC)[0].physical_offset < op.physical_offset

    TransactionWorld.of().run(use)


def test_a_message_for_further_queues_is_in_these_once_it_is_committed() -> None:
    """RocketMQ shows the half message there, also one that is rolled back."""

    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            names = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0"}
            half = await world.prepare(client, b"commit", properties=names)
            other = await world.prepare(client, b"rollback", properties=names)
            await trio.sleep(0.1)
            assert world.bodies("%LMQ%a") == []
            assert (await client.end(half, COMMIT)).code == SUCCESS
            assert (await client.end(other, ROLLBACK)).code == SUCCESS
            await trio.sleep(0.1)
            assert world.bodies("%LMQ%a") == [b"commit"]

    TransactionWorld.of(enable_multi_dispatch=True, enable_lmq=True).run(use)


def test_a_oneway_end_is_not_answered() -> None:
    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            half = await world.prepare(client, b"x")
            request = end_request(half, COMMIT)
            request.flag |= 2
            with trio.move_on_after(1):
                await client.ask(request)
            assert world.bodies() == [b"x"]

    TransactionWorld.of().run(use)
