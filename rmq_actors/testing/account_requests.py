"""What clients of accounts ask of brokers, as values: what each request needs, and how one is drawn. Pure.

`KINDS` has them by name. What a request needs stands beside it (`account_table.need`), as docs/security.md says it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from rmq_actors.protocols.transactional_messages import PROPERTY_PRODUCER_GROUP, PROPERTY_TRANSACTION_PREPARED
from rmq_actors.testing.account_table import (
    ACCOUNT_GROUPS,
    ACCOUNT_TOPICS,
    BY_ADMINISTRATOR,
    DEEP,
    FURTHER_TOPIC,
    OWN_TOPIC,
    RETRY,
    need,
    of_group,
)
from rmq_actors.testing.strange_requests import Dice, command_of
from rmq_actors.testing.thin_client import (
    PRODUCER_GROUP,
    Prepared,
    end_request,
    make_topic_request,
    send_request,
    subscription,
)
from rmq_actors.wire.batch import encode_batch
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
)
from rmq_actors.wire.bodies.message_queues import LockBatchRequestBody, MessageQueue, UnlockBatchRequestBody
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.dispatch_request import (
    HALF_TOPIC,
    PROPERTY_DELAY,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_UNIQ_KEY,
    SCHEDULE_TOPIC,
    WAITING_TOPICS,
)
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.admin import QueryConsumeQueueRequestHeader, ViewBrokerStatsDataRequestHeader
from rmq_actors.wire.headers.clients import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerListByGroupRequestHeader,
    UnregisterClientRequestHeader,
)
from rmq_actors.wire.headers.messages import (
    ConsumerSendMsgBackRequestHeader,
    QueryMessageRequestHeader,
    SendMessageRequestHeader,
    ViewMessageRequestHeader,
)
from rmq_actors.wire.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmq_actors.wire.headers.topics import DeleteTopicRequestHeader
from rmq_actors.wire.properties import encode_properties
from rmq_actors.wire.pull_sys_flag import PullSysFlag
from rmq_actors.wire.record import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    StoredMessage,
)
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode, RequestCode, RequestCode497

#: What the bodies of these clients' messages begin with; then comes the name of the request.
MARK = b"of-an-account "
#: What every account may send to, and one that nobody sends to.
TRACE_TOPIC, SYSTEM_TOPIC = "RMQ_SYS_TRACE_TOPIC", "SELF_TEST_TOPIC"
#: What the names of topics and groups begin with that nobody but an administrator makes.
MADE = "MadeBy-"
_QUEUES, _RECENT, _MAX = 2, 12, 32
#: A time in ms that all messages are before.
_FAR_MS = 2**60
#: How often a half message claims a topic, and how often a message that claims one is looked at.
_CLAIMS = 0.5


@attrs.frozen
class Known:
    """A message that a broker has taken: the request's name, its topic, and where it was in the log.

    `half`: by what its transaction is ended, if it is of one; `claims`: it is of none, and says that it waits.
    """

    key: str
    topic: str
    offset: int
    half: Prepared
    claims: bool = False


@attrs.frozen
class Asked:
    """A request that is not signed yet, and what it needs.

    `topic`: where its message goes; `about`: the name of the request whose message it is about, which `offset` says.
    `is_half`: its message is one of a transaction; `claims`: see `Known`. `is_oneway`: nobody answers. `harms`: no run
    goes on well once it is done. `shows`: the answer is messages.
    """

    command: RemotingCommand
    needs: Sequence[str] = ()
    topic: str = ""
    about: str = ""
    offset: int = -1
    is_oneway: bool = False
    is_half: bool = False
    claims: bool = False
    harms: bool = False
    shows: bool = False


@attrs.frozen
class Draft:
    """What a request is drawn from; `key` is no other's, `known` are messages that there are, and half ones."""

    dice: Dice
    key: str
    known: Sequence[Known]
    halves: Sequence[Known]

    @property
    def topic(self) -> str:
        """One of those that accounts are about."""
        return self.dice.choice(ACCOUNT_TOPICS)

    @property
    def group(self) -> str:
        """One of those that accounts are about."""
        return self.dice.choice(ACCOUNT_GROUPS)

    @property
    def queue_id(self) -> int:
        """One that each topic has."""
        return self.dice.randrange(_QUEUES)

    @property
    def body(self) -> bytes:
        """Which request it is of."""
        return MARK + self.key.encode() + b" " + b"x" * self.dice.randrange(40)

    @property
    def message(self) -> Known | None:
        """One of the newest that there are."""
        return self.dice.choice(self.known[-_RECENT:]) if self.known else None

    @property
    def claiming(self) -> Known | None:
        """One that says that it waits for another topic."""
        claiming = [each for each in self.known if each.claims]
        return self.dice.choice(claiming[-_RECENT:]) if claiming else None


def real_topic(message: StoredMessage) -> str:
    """Where a message goes that waits, or is."""
    if message.topic not in WAITING_TOPICS:
        return message.topic
    return message.properties.get(PROPERTY_REAL_TOPIC, message.topic)


Drawn = Callable[[Draft], Asked | None]


# --- what leaves a message --------------------------------------------------------------------------------------------


def _sent(
    draft: Draft, topic: str, properties: Mapping[str, str], *needs: str, is_oneway: bool = False, **fields: object
) -> Asked:
    said = {"KEYS": draft.key, **properties}
    command = send_request(topic, draft.body, draft.queue_id, said, **fields)  # type: ignore[arg-type]
    return Asked(command, (need(topic, "PUB"), *needs), topic, is_oneway=is_oneway)


def _send(draft: Draft) -> Asked:
    return _sent(draft, draft.topic, {})


def _send_oneway(draft: Draft) -> Asked:
    return _sent(draft, draft.topic, {}, is_oneway=True)


def _send_as_before(draft: Draft) -> Asked:
    """With the header of old clients."""
    topic = draft.topic
    header = SendMessageRequestHeader(
        "PG", topic, "TBW102", 4, draft.queue_id, 0, 1, 0, encode_properties({"KEYS": draft.key}).decode()
    )
    return Asked(command_of(RequestCode.SEND_MESSAGE, header, draft.body), [need(topic, "PUB")], topic)


def _send_batch(draft: Draft) -> Asked:
    topic = draft.topic
    body = encode_batch([(draft.body, 0, {"KEYS": draft.key}) for _ in range(2)])
    return Asked(send_request(topic, body, draft.queue_id, batch=True), [need(topic, "PUB")], topic)


def _send_delayed(draft: Draft) -> Asked:
    return _sent(draft, draft.topic, {PROPERTY_DELAY: "1"})


def _send_claiming(draft: Draft) -> Asked:
    """A message that says that it waits for another topic."""
    claimed = {
        PROPERTY_REAL_TOPIC: draft.topic,
        PROPERTY_REAL_QUEUE_ID: "0",
        PROPERTY_PRODUCER_GROUP: PRODUCER_GROUP,
    }
    return attrs.evolve(_sent(draft, draft.topic, claimed), claims=True)


def _send_to_retries(draft: Draft) -> Asked:
    topic = RETRY + draft.group
    command = send_request(topic, draft.body, 0, {"KEYS": draft.key})
    return Asked(command, [need(topic, "SUB")], topic)


def _send_to_further_queues(draft: Draft) -> Asked:
    """A message that enters queues of another topic, too, once it has waited."""
    further = {PROPERTY_INNER_MULTI_DISPATCH: FURTHER_TOPIC}
    needed = DEEP + need(FURTHER_TOPIC, "PUB")
    how = draft.dice.choice(("at once", "at once", "delayed", "half"))
    if how == "half":
        return _half(draft, further, needed)
    return _sent(draft, draft.topic, further | ({PROPERTY_DELAY: "1"} if how == "delayed" else {}), needed)


def _send_traces(draft: Draft) -> Asked:
    command = send_request(TRACE_TOPIC, draft.body, 0, {"KEYS": draft.key})
    return Asked(command, (), TRACE_TOPIC)


def _send_to_system_topic(draft: Draft) -> Asked:
    topic = draft.dice.choice((SYSTEM_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC))
    return _sent(draft, topic, {PROPERTY_REAL_TOPIC: OWN_TOPIC, PROPERTY_REAL_QUEUE_ID: "0"})


def _half(draft: Draft, properties: Mapping[str, str], *needs: str) -> Asked:
    """A message whose transaction is to be ended."""
    marked = {
        PROPERTY_UNIQ_KEY: draft.key,
        PROPERTY_TRANSACTION_PREPARED: "true",
        PROPERTY_PRODUCER_GROUP: PRODUCER_GROUP,
        **properties,
    }
    return attrs.evolve(
        _sent(draft, draft.topic, marked, *needs, sys_flag=TRANSACTION_PREPARED_TYPE),
        is_half=True,
    )


def _prepare(draft: Draft) -> Asked:
    """At times with a topic that the broker writes itself."""
    return _half(draft, {PROPERTY_REAL_TOPIC: OWN_TOPIC} if draft.dice.random() < _CLAIMS else {})


def _end(draft: Draft, state: int) -> Asked | None:
    if not draft.halves:
        return None
    known = draft.dice.choice(draft.halves[-_RECENT:])
    needs = [DEEP + need(known.topic, "PUB")]
    return Asked(end_request(known.half, state), needs, about=known.key, offset=known.offset)


def _commit(draft: Draft) -> Asked | None:
    return _end(draft, TRANSACTION_COMMIT_TYPE)


def _roll_back(draft: Draft) -> Asked | None:
    return _end(draft, TRANSACTION_ROLLBACK_TYPE)


def _commit_another(draft: Draft) -> Asked | None:
    """A message that is none of a transaction."""
    known = draft.claiming
    if known is None:
        return None
    needs = [DEEP + need(known.topic, "PUB")]
    return Asked(end_request(known.half, TRANSACTION_COMMIT_TYPE), needs, about=known.key, offset=known.offset)


def _send_back(draft: Draft) -> Asked | None:
    known, group = draft.message, draft.group
    if known is None:
        return None
    header = ConsumerSendMsgBackRequestHeader(known.offset, group, 1)
    needs = [of_group(group), DEEP + need(known.topic, "SUB")]
    command = command_of(RequestCode.CONSUMER_SEND_MSG_BACK, header)
    return Asked(command, needs, RETRY + group, about=known.key, offset=known.offset)


# --- what shows something ---------------------------------------------------------------------------------------------


def _view(draft: Draft) -> Asked | None:
    known = draft.claiming if draft.dice.random() < _CLAIMS else draft.message
    if known is None:
        return None
    command = command_of(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(known.offset))
    return Asked(command, [DEEP + need(known.topic, "PUB|SUB")], about=known.key, offset=known.offset, shows=True)


def _query(draft: Draft) -> Asked | None:
    known = draft.message
    if known is None:
        return None
    header = QueryMessageRequestHeader(known.topic, known.key, _MAX, 0, _FAR_MS)
    return Asked(command_of(RequestCode.QUERY_MESSAGE, header), [need(known.topic, "SUB")], shows=True)


def _pull(draft: Draft) -> Asked:
    topic, group = draft.topic, draft.group
    flags = int(PullSysFlag.SUBSCRIPTION)
    header = PullMessageRequestHeader(group, topic, draft.queue_id, 0, _MAX, flags, 0, 0, 0, "*")
    return Asked(command_of(RequestCode.PULL_MESSAGE, header), [of_group(group), need(topic, "SUB")])


def _pull_retries(draft: Draft) -> Asked:
    topic, group = RETRY + draft.group, draft.group
    flags = int(PullSysFlag.SUBSCRIPTION)
    header = PullMessageRequestHeader(group, topic, 0, 0, _MAX, flags, 0, 0, 0, "*")
    return Asked(command_of(RequestCode.PULL_MESSAGE, header), [of_group(group), need(topic, "SUB")], shows=True)


def _bounds(draft: Draft) -> Asked:
    topic, queue_id = draft.topic, draft.queue_id
    code, header = draft.dice.choice(
        (
            (RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic, queue_id)),
            (RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic, queue_id)),
            (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader(topic, queue_id, 0)),
        )
    )
    return Asked(command_of(code, header), [need(topic, "PUB|SUB")])


def _entries(draft: Draft) -> Asked:
    topic = draft.topic
    header = QueryConsumeQueueRequestHeader(topic, draft.queue_id, 0, 4)
    return Asked(command_of(RequestCode.QUERY_CONSUME_QUEUE, header), [need(topic, "SUB")])


def _statistic(draft: Draft) -> Asked:
    topic = draft.topic
    header = ViewBrokerStatsDataRequestHeader("TOPIC_PUT_NUMS", topic)
    return Asked(command_of(RequestCode.VIEW_BROKER_STATS_DATA, header), [need(topic, "PUB|SUB")])


# --- groups -----------------------------------------------------------------------------------------------------------


def _commit_offset(draft: Draft) -> Asked:
    topic, group = draft.topic, draft.group
    header = UpdateConsumerOffsetRequestHeader(group, topic, draft.queue_id, draft.dice.randrange(3))
    return Asked(command_of(RequestCode.UPDATE_CONSUMER_OFFSET, header), [of_group(group), need(topic, "SUB")])


def _committed(draft: Draft) -> Asked:
    topic, group = draft.topic, draft.group
    header = QueryConsumerOffsetRequestHeader(group, topic, draft.queue_id)
    return Asked(command_of(RequestCode.QUERY_CONSUMER_OFFSET, header), [of_group(group), need(topic, "SUB")])


def _members(draft: Draft) -> Asked:
    group = draft.group
    header = GetConsumerListByGroupRequestHeader(group)
    return Asked(command_of(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header), [of_group(group)])


def _leave(draft: Draft) -> Asked:
    group = draft.group
    header = UnregisterClientRequestHeader("visitor", None, group)
    return Asked(command_of(RequestCode.UNREGISTER_CLIENT, header), [of_group(group)])


def _beat(draft: Draft) -> Asked:
    topics, group = sorted({draft.topic, draft.topic}), draft.group
    consumer = ConsumerData(
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        group_name=group,
        message_model=MessageModel.CLUSTERING,
        subscription_data_set=[subscription(topic) for topic in topics],
    )
    data = HeartbeatData(client_id="visitor", consumer_data_set=[consumer], producer_data_set=[])
    command = command_of(RequestCode.HEART_BEAT, body=encode_body(data))
    return Asked(command, [of_group(group), *(need(topic, "SUB") for topic in topics)])


def _lock(draft: Draft) -> Asked:
    topics, group = sorted({draft.topic, draft.topic}), draft.group
    queues = [MessageQueue(topic=topic, broker_name="broker-a", queue_id=0) for topic in topics]
    code, make = draft.dice.choice(
        (
            (RequestCode.LOCK_BATCH_MQ, LockBatchRequestBody),
            (RequestCode.UNLOCK_BATCH_MQ, UnlockBatchRequestBody),
        )
    )
    body = encode_body(make(client_id="visitor", consumer_group=group, mq_set=queues))
    return Asked(command_of(code, body=body), [of_group(group), *(need(topic, "SUB") for topic in topics)])


# --- what only administrators may -------------------------------------------------------------------------------------


def _make_topic(draft: Draft) -> Asked:
    return Asked(make_topic_request(MADE + draft.key, _QUEUES), [BY_ADMINISTRATOR])


def _make_group(draft: Draft) -> Asked:
    config = SubscriptionGroupConfig(group_name=MADE + draft.key)
    command = command_of(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode_body(config))
    return Asked(command, [BY_ADMINISTRATOR])


def _look_at_accounts(draft: Draft) -> Asked:
    code = draft.dice.choice((RequestCode.GET_BROKER_CLUSTER_ACL_INFO, RequestCode497.GET_BROKER_CLUSTER_ACL_CONFIG))
    return Asked(command_of(code), [BY_ADMINISTRATOR])


def _look_at_producers(_: Draft) -> Asked:
    return Asked(command_of(RequestCode.GET_ALL_PRODUCER_INFO), [BY_ADMINISTRATOR])


def _delete(draft: Draft) -> Asked:
    """A topic or a group that there is not."""
    name = f"{MADE}{draft.key}"
    code, header = draft.dice.choice(
        (
            (RequestCode.DELETE_TOPIC_IN_BROKER, encode_header(DeleteTopicRequestHeader(name))),
            (RequestCode.DELETE_SUBSCRIPTIONGROUP, encode_header(DeleteSubscriptionGroupRequestHeader(name))),
        )
    )
    return Asked(RemotingCommand(code, header), [BY_ADMINISTRATOR], harms=True)


def _command(draft: Draft) -> Asked:
    """What would change the broker itself."""
    code = draft.dice.choice(
        (
            OwnRequestCode.FOLLOW_AGAIN,
            OwnRequestCode.TRUNCATE_LOG,
            OwnRequestCode.BEGIN_EXCHANGE,
            OwnRequestCode.PREPARE_EXCHANGE,
            OwnRequestCode.PROMOTE_EXCHANGE,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
            RequestCode.DELETE_EXPIRED_COMMITLOG,
            RequestCode.CLEAN_UNUSED_TOPIC,
        )
    )
    return Asked(RemotingCommand(code), [BY_ADMINISTRATOR], harms=True)


def _set_white_list(draft: Draft) -> Asked:
    fields = {"globalWhiteAddrs": "*"}
    if draft.dice.random() < 0.5:
        return Asked(
            RemotingCommand(RequestCode.DELETE_ACL_CONFIG, {"accessKey": "administrator"}),
            [BY_ADMINISTRATOR],
            harms=True,
        )
    command = RemotingCommand(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, fields)
    return Asked(command, [BY_ADMINISTRATOR], harms=True)


def _set_setting(_: Draft) -> Asked:
    command = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=0")
    return Asked(command, [BY_ADMINISTRATOR], harms=True)


def _look_at_settings(_: Draft) -> Asked:
    """Every account may."""
    return Asked(RemotingCommand(RequestCode.GET_BROKER_CONFIG))


#: What they ask, by name; which of these a slave may be asked, too.
KINDS: Mapping[str, Drawn] = {
    "send": _send,
    "send_oneway": _send_oneway,
    "send_as_before": _send_as_before,
    "send_batch": _send_batch,
    "send_delayed": _send_delayed,
    "send_claiming": _send_claiming,
    "send_to_retries": _send_to_retries,
    "send_to_further_queues": _send_to_further_queues,
    "send_traces": _send_traces,
    "send_to_system_topic": _send_to_system_topic,
    "prepare": _prepare,
    "commit": _commit,
    "roll_back": _roll_back,
    "commit_another": _commit_another,
    "send_back": _send_back,
    "view": _view,
    "query": _query,
    "pull": _pull,
    "pull_retries": _pull_retries,
    "bounds": _bounds,
    "entries": _entries,
    "statistic": _statistic,
    "commit_offset": _commit_offset,
    "committed": _committed,
    "members": _members,
    "leave": _leave,
    "beat": _beat,
    "lock": _lock,
    "make_topic": _make_topic,
    "make_group": _make_group,
    "look_at_accounts": _look_at_accounts,
    "look_at_producers": _look_at_producers,
    "delete": _delete,
    "command": _command,
    "set_white_list": _set_white_list,
    "set_setting": _set_setting,
    "look_at_settings": _look_at_settings,
}
#: A kind that is named more often comes more often.
DRAWN: Sequence[str] = (
    *KINDS,
    *("send", "send", "send", "send_claiming", "send_delayed", "prepare", "commit", "send_to_further_queues"),
    *("view", "view", "view", "view", "send_back", "query", "pull"),
)
AT_SLAVES = frozenset({"view", "query", "pull", "pull_retries", "bounds", "entries", "statistic", "committed", "send"})
