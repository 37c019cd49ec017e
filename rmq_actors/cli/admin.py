"""`rmq-actors admin ...`: topics, messages and offsets of a cluster, by its name servers, RocketMQ's or these."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import trio
import typer

from rmq_actors.cli.argument_values import name, number, sendable
from rmq_actors.cli.broker_request import session_credentials
from rmq_actors.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from rmq_actors.client.admin import Admin
    from rmq_actors.client.client_instance import MQClientInstance
    from rmq_actors.client.consumer_config import PullConsumerConfig
    from rmq_actors.client.message_ext import MessageExt
    from rmq_actors.client.pull_consumer import PullConsumer
    from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere
    from rmq_actors.wire.record import StoredMessage

T = TypeVar("T")

admin_app = typer.Typer(
    add_completion=False,
    help="""Topics, messages and offsets of a cluster, as its name servers say, RocketMQ's or these.

    If the brokers have aclEnable, set ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY.

    Exit codes: 0 done, 1 a broker or name server refused or does not answer, 2 bad usage, or what no broker would take.
    """,
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(callback=name, show_default=False)]
Text = Annotated[str, typer.Argument(callback=sendable, show_default=False)]
NameServers = Annotated[
    str,
    typer.Option(
        "-n", "--namesrv", metavar="ADDRESSES", envvar="NAMESRV_ADDR", help="Name servers: HOST:PORT;HOST:PORT."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonLines = Annotated[bool, typer.Option("--json", help="One JSON object per message, one per line; bodies in base64.")]
Tags = Annotated[str, typer.Option("--tags", callback=sendable, help='Only messages with these tags: "new || paid".')]
Count = Annotated[int | None, typer.Option("--count", min=1, help="End after this many messages.")]
WaitS = Annotated[
    float | None,
    typer.Option("--wait", min=0.05, max=1e6, callback=number, help="End when none has come for this many seconds."),
]
_DEFAULT = "127.0.0.1:9876"
#: RocketMQ's own tools consume by this group, which every broker has.
_TOOLS_GROUP = "TOOLS_CONSUMER"
_POLL_MS = 60_000
_SHOWN_BYTES = 200


@admin_app.command()
def topics(namesrv: NameServers = _DEFAULT, as_json: Json = False) -> None:
    """Print the names of all topics."""
    names = _run(namesrv, lambda admin, _: admin.topics())
    _print_json(names) if as_json else typer.echo("\n".join(names))


@admin_app.command()
def route(topic: Name, namesrv: NameServers = _DEFAULT, as_json: Json = False) -> None:
    """Print which brokers have a topic, with their addresses and queues."""
    found = _run(namesrv, lambda admin, _: admin.route(topic))
    if as_json:
        _print_json(found)
        return
    for data in found.broker_datas:
        for broker_id, address in sorted(data.broker_addrs.items()):
            typer.echo(f"{data.broker_name}: {'slave' if broker_id else 'master'} {broker_id} at {address}")
    for queues in found.queue_datas:
        typer.echo(
            f"{queues.broker_name}: {queues.read_queue_nums} queues to read, {queues.write_queue_nums} to write, "
            f"perm {queues.perm}"
        )


@admin_app.command("create-topic")
def create_topic(
    topic: Name,
    queues: Annotated[int, typer.Option("--queues", min=1, max=16_384, help="How many queues on each master.")] = 8,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Only at the masters of this cluster.")] = None,
    namesrv: NameServers = _DEFAULT,
) -> None:
    """Make a topic at every master, or change its number of queues."""
    from rmq_actors.wire.bodies.topic_configs import TopicConfig

    config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
    _run(namesrv, lambda admin, _: admin.create_topic(config, cluster=cluster))


@admin_app.command("delete-topic")
def delete_topic(
    topic: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    namesrv: NameServers = _DEFAULT,
) -> None:
    """Remove a topic and its messages from every master; an error if no broker has it."""
    if not yes:
        typer.confirm(f"Remove topic {topic} with all its messages?", abort=True)

    async def do(admin: Admin, _: MQClientInstance) -> None:
        await admin.route(topic)
        await admin.delete_topic(topic)

    _run(namesrv, do)


@admin_app.command()
def send(
    topic: Name,
    body: Text,
    tags: Annotated[str | None, typer.Option("--tags", help="The message's tag.")] = None,
    keys: Annotated[str | None, typer.Option("--keys", help="Its keys, with blanks between them.")] = None,
    namesrv: NameServers = _DEFAULT,
) -> None:
    """Send a message, and print how it is stored, its ids, and its place."""
    from rmq_actors.client.config import ProducerConfig
    from rmq_actors.client.producer import run_producer
    from rmq_actors.client.send_result import SendResult
    from rmq_actors.wire.record import Message

    properties = {name: text for name, text in (("TAGS", tags), ("KEYS", keys)) if text}

    async def do(_: Admin, instance: MQClientInstance) -> SendResult:
        async with run_producer(instance, ProducerConfig("rmq-actors-admin")) as producer:
            return await producer.send(Message(topic, body.encode(), properties=properties))

    result = _run(namesrv, do)
    queue = result.queue
    typer.echo(
        f"{result.status.value} {result.msg_id} {result.offset_msg_id} "
        f"{queue.broker_name} queue {queue.queue_id} offset {result.queue_offset}"
    )


@admin_app.command()
def query(topic: Name, key: Name, namesrv: NameServers = _DEFAULT) -> None:
    """Print messages of a topic by one of their keys: id, time, place and body."""
    for message in _run(namesrv, lambda admin, _: admin.messages_by_key(topic, key)):
        typer.echo(_line(message))


@admin_app.command()
def consume(
    topic: Name,
    group: Name,
    tags: Tags = "*",
    from_first: Annotated[
        bool, typer.Option("--from-first", help="Begin a queue in which the group has no offset at its first message.")
    ] = False,
    count: Count = None,
    wait_s: WaitS = None,
    as_json: JsonLines = False,
    namesrv: NameServers = _DEFAULT,
) -> None:
    """Print a topic's messages as a member of a consumer group, which has consumed them by that; until Ctrl-C (130)."""
    from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere

    where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET if from_first else ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    config = _consumer_config(group, where, count, topic, tags, commits=True)

    async def do(admin: Admin, instance: MQClientInstance) -> None:
        from rmq_actors.client.pull_consumer import run_pull_consumer

        await admin.route(topic)  # a name that is wrong is no reason to wait
        async with run_pull_consumer(instance, config, {topic: tags}) as consumer:
            await _print_messages(consumer, count, wait_s, as_json=as_json)
            await consumer.commit()

    _run(namesrv, do)


@admin_app.command()
def tail(
    topic: Name,
    tags: Tags = "*",
    last: Annotated[int, typer.Option("--last", min=0, max=2**31 - 1, help="Begin with this many of each queue.")] = 0,
    count: Count = None,
    wait_s: WaitS = None,
    as_json: JsonLines = False,
    namesrv: NameServers = _DEFAULT,
) -> None:
    """Print the messages that come to a topic's queues, whoever consumes them; until Ctrl-C (130)."""
    from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere

    where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    config = _consumer_config(_TOOLS_GROUP, where, count, topic, tags, commits=False)

    async def do(_: Admin, instance: MQClientInstance) -> None:
        from rmq_actors.client.pull_consumer import run_pull_consumer

        async with run_pull_consumer(instance, config) as consumer:
            queues = await consumer.fetch_message_queues(topic)
            if not queues:
                raise typer.BadParameter(f"no queue of {topic} can be read")
            for queue in queues:
                first, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
                consumer.seek(queue, max(first, end - last))
            consumer.assign(queues, tags)
            await _print_messages(consumer, count, wait_s, as_json=as_json)

    _run(namesrv, do)


@admin_app.command("reset-offsets")
def reset_offsets(
    group: Name,
    topic: Name,
    timestamp_ms: Annotated[int, typer.Argument(min=0, max=2**63 - 1, help="Milliseconds since the epoch.")],
    namesrv: NameServers = _DEFAULT,
) -> None:
    """Let a consumer group go on at the messages stored at a time or later, and print the new offsets."""
    found = _run(namesrv, lambda admin, _: admin.reset_offset_by_timestamp(group, topic, timestamp_ms))
    for queue, offset in found.items():
        typer.echo(f"{queue.broker_name} queue {queue.queue_id}: {offset}")


def _consumer_config(
    group: str, where: ConsumeFromWhere, count: int | None, topic: str, tags: str, *, commits: bool
) -> PullConsumerConfig:
    """Raises `BadParameter` for a group or an expression of tags that cannot be."""
    from rmq_actors.client.consumer_config import PullConsumerConfig
    from rmq_actors.protocols.filter_api import TAG, build_subscription

    try:
        build_subscription(topic, tags, TAG)
        # One at a time where they are counted: what was given counts as consumed, printed or not.
        return PullConsumerConfig(
            group,
            consume_from_where=where,
            auto_commit=commits,
            poll_batch_size=32 if count is None else 1,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


async def _print_messages(consumer: PullConsumer, count: int | None, wait_s: float | None, *, as_json: bool) -> None:
    """Print messages. Return after `count` of them, or when none has come for `wait_s`; None: never."""
    printed, poll_ms = 0, _POLL_MS if wait_s is None else int(1000 * wait_s)
    while count is None or printed < count:
        messages = await consumer.poll(poll_ms)
        if not messages and wait_s is not None:
            return
        for message in messages:
            _print_json(_told(message)) if as_json else typer.echo(_line(message))
        printed += len(messages)


def _line(message: StoredMessage | MessageExt) -> str:
    stored = datetime.fromtimestamp(message.store_timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return (
        f"{message.properties.get('UNIQ_KEY', '-')} {stored} queue {message.queue_id} "
        f"offset {message.queue_offset} {message.body[:_SHOWN_BYTES]!r}"
    )


def _told(message: MessageExt) -> dict[str, object]:
    """With the names of `store dump`."""
    return {
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "brokerName": message.broker_name,
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "storeTimestamp": message.store_timestamp_ms,
        "reconsumeTimes": message.reconsume_times,
        "properties": message.properties,
        "body": message.body,
    }


def _run(namesrv: str, call: Callable[[Admin, MQClientInstance], Awaitable[T]]) -> T:
    """What a call returns. A failure is printed, and ends the command with its exit code."""
    from rmq_actors.client.admin import Admin
    from rmq_actors.client.client_error import ClientError, MessageRefused
    from rmq_actors.client.config import ClientConfig
    from rmq_actors.embedding.clients import open_real_client

    try:
        config = ClientConfig(namesrv)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error

    async def main() -> T:
        async with open_real_client(config, credentials=session_credentials()) as instance:
            return await call(Admin(instance), instance)

    try:
        return trio.run(main)
    except ClientError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(ExitCode.BAD_INPUT if isinstance(error, MessageRefused) else ExitCode.CHECK_FAILED) from error


def _print_json(value: object) -> None:
    import msgspec

    typer.echo(msgspec.json.encode(value).decode())
