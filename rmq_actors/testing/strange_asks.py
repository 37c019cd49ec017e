"""What strangers ask beside sending: `ASKS` has a kind, what is right for it, and how one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from rmq_actors.protocols.transactional_messages import PROPERTY_PRODUCER_GROUP
from rmq_actors.testing.clients import TOPIC_OF_ALL
from rmq_actors.testing.strange_puts import taken
from rmq_actors.testing.strange_requests import (
    GROUP,
    MARK,
    STRANGE_QUEUES,
    STRANGE_TOPIC,
    STRAY,
    TAGS,
    Draft,
    Drawn,
    Rule,
    Step,
    StrangeRequest,
    command_of,
    pull_rule,
    rule,
    step,
)
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.message_queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.dispatch_request import PROPERTY_REAL_QUEUE_ID, PROPERTY_REAL_TOPIC
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.admin import UpdateBrokerConfigRequestHeader
from rmq_actors.wire.headers.clients import DeleteSubscriptionGroupRequestHeader, GetConsumerListByGroupRequestHeader
from rmq_actors.wire.headers.messages import (
    ConsumerSendMsgBackRequestHeader,
    QueryMessageRequestHeader,
    SendMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rmq_actors.wire.headers.offsets import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmq_actors.wire.headers.topics import CreateTopicRequestHeader, DeleteTopicRequestHeader
from rmq_actors.wire.headers.transactions import EndTransactionRequestHeader
from rmq_actors.wire.message_id import decode_message_id
from rmq_actors.wire.pull_sys_flag import PullSysFlag
from rmq_actors.wire.record import TRANSACTION_COMMIT_TYPE, StoredMessage, decode_message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_OK, _ERROR, _NO_TOPIC = ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR, ResponseCode.TOPIC_NOT_EXIST
_NOT_FOUND, _RETRY = ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY
_MOVED, _MASTER = ResponseCode.PULL_OFFSET_MOVED, "MASTER"
#: Longer than any queue is.
_FAR = 10**6
_NAME_MAX = 127
#: A topic and a group for which nothing can be kept.
_LONG_NAMES = ((STRAY + "x" * _NAME_MAX, GROUP), (STRANGE_TOPIC, STRAY + "x" * 2 * _NAME_MAX))
#: Expressions, and which messages they choose by their properties.
_EXPRESSIONS: Sequence[tuple[str, str, Callable[[Mapping[str, str]], bool]]] = (
    *((tag, "TAG", lambda of, tag=tag: of.get("TAGS") == tag) for tag in TAGS),
    ("A || B", "TAG", lambda of: of.get("TAGS") in ("A", "B")),
    ("nobody", "TAG", lambda _: False),
    ("n > 5", "SQL92", lambda of: int(of.get("n", "-1")) > 5),
    ("n BETWEEN 2 AND 7", "SQL92", lambda of: 2 <= int(of.get("n", "-1")) <= 7),
    ("TAGS IN ('A', 'C')", "SQL92", lambda of: of.get("TAGS") in ("A", "C")),
    ("TAGS = 'B' AND n < 5", "SQL92", lambda of: of.get("TAGS") == "B" and int(of.get("n", "9")) < 5),
    ("n IS NULL", "SQL92", lambda of: "n" not in of),
    # A text is read as a number of as many bits as the one that it is compared with has.
    ("far > 5", "SQL92", lambda of: of.get("far") == "7"),
    ("far < 8", "SQL92", lambda of: of.get("far") == "7"),
    ("far > 2999999999", "SQL92", lambda of: of.get("far") == "3000000000"),
    ("nobody NOT IN ('A')", "SQL92", lambda _: False),
    ("TAGS NOT IN ('A')", "SQL92", lambda of: of.get("TAGS", "A") != "A"),
    ("nobody IS NOT NULL", "SQL92", lambda _: False),
)
_EXPRESSIONS_AT_ONCE = 3
_NO_EXPRESSIONS = ("n >", "n BETWEEN 2", "AND", "'a' > 1 OR", "n = 1; n", "(n = 1")
#: A setting that may be changed, and what may not stand beside it.
_GOOD_KEY = "slaveTimeout"
_BAD_KEYS = (
    *("listenPort=1", "listenPrt=1", "serverWorkerThreads=1", "brokerRole=KING", "mappedFileSizeCommitLog=8192"),
    *("haMasterAddress=nowhere", "slaveReadEnable=\\u00"),
)
_BLACK_KEYS = ("configBlackList", "rocketmqHome", "brokerConfigPath")


def _one(kind: str, command: RemotingCommand) -> StrangeRequest:
    return StrangeRequest(kind, [step(command)])


def pull_request(
    queue_id: int,
    offset: int,
    *,
    topic: str = STRANGE_TOPIC,
    group: str = GROUP,
    expression: str = "*",
    expression_type: str | None = None,
    hold_ms: int = 0,
) -> RemotingCommand:
    """A pull."""
    flags = PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if hold_ms else PullSysFlag(0))
    header = PullMessageRequestHeader(
        group, topic, queue_id, offset, 32, int(flags), 0, hold_ms, 0, expression, expression_type
    )
    return command_of(RequestCode.PULL_MESSAGE, header)


# --- what nobody can read -------------------------------------------------------------------------------------------


def _unknown_code(draft: Draft) -> StrangeRequest:
    return _one("unknown_code", command_of(draft.rng.choice((-1, 0, 9_999, 77_777, 2**31 - 1))))


def _bad_field(draft: Draft) -> StrangeRequest:
    """A field that must be there is not, or is no number."""
    pull = pull_request(draft.queue_id, 0)
    view = command_of(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(0))
    end = command_of(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader(GROUP))
    command, name, may_be_text = draft.rng.choice(
        ((pull, "topic", True), (pull, "queueOffset", False), (view, "offset", False), (end, "consumerGroup", True))
    )
    assert command.ext_fields is not None
    if may_be_text or draft.rng.random() < 1 / 2:
        del command.ext_fields[name]
    else:
        command.ext_fields[name] = draft.rng.choice(("", "x", "1.5", "9" * 30))
    return _one("bad_field", command)


def _bad_body(draft: Draft) -> StrangeRequest:
    code = draft.rng.choice(
        (RequestCode.LOCK_BATCH_MQ, RequestCode.HEART_BEAT, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    )
    return _one(
        "bad_body", command_of(code, body=draft.rng.choice((b"{", b"[]", b"\xff", b'{"mqSet":1,"clientID":{}}')))
    )


# --- pulls ------------------------------------------------------------------------------------------------------------


def _pull_queue(draft: Draft) -> StrangeRequest:
    return _one("pull_queue", pull_request(draft.rng.choice((-1, STRANGE_QUEUES, 2**31 - 1)), 0))


def _pull_topic(draft: Draft) -> StrangeRequest:
    return _one("pull_topic", pull_request(0, 0, topic=f"{STRAY}-{draft.key}"))


def _pull_names(draft: Draft) -> StrangeRequest:
    topic, group = draft.rng.choice(_LONG_NAMES)
    return _one("pull_names", pull_request(0, 0, topic=topic, group=group))


def _pull_past(draft: Draft) -> StrangeRequest:
    """A master says where the queue ends; a slave, which may be behind, has the consumer ask again."""
    asked = draft.rng.choice((_FAR, 2**62))
    hold_ms, topic = draft.rng.choice((0, 500)), draft.rng.choice((STRANGE_TOPIC, TOPIC_OF_ALL))

    def wrong(role: str, answers: Sequence[RemotingCommand]) -> str:
        if "nextBeginOffset" not in (answers[0].ext_fields or {}):
            return ""
        header = decode_header(PullMessageResponseHeader, answers[0])
        due = header.max_offset if answers[0].code == _MOVED else asked
        if header.next_begin_offset != due:
            return f"next is {header.next_begin_offset}, due is {due}"
        return _wrong_code(role, asked, answers[0])

    return StrangeRequest(
        "pull_past", [step(pull_request(draft.queue_id, asked, topic=topic, hold_ms=hold_ms))], wrong=wrong
    )


def _pull_before(draft: Draft) -> StrangeRequest:
    asked = draft.rng.choice((-1, -(2**62)))

    def wrong(role: str, answers: Sequence[RemotingCommand]) -> str:
        if answers[0].code != _MOVED:
            return _wrong_code(role, asked, answers[0])
        header = decode_header(PullMessageResponseHeader, answers[0])
        is_right = header.next_begin_offset in (0, header.min_offset)
        return "" if is_right else f"next is {header.next_begin_offset}, the queue begins at {header.min_offset}"

    return StrangeRequest("pull_before", [step(pull_request(draft.queue_id, asked))], wrong=wrong)


def _pull_nothing(draft: Draft) -> StrangeRequest:
    """A queue that nobody has put to is empty."""
    asked = draft.rng.choice((0, 7))

    def wrong(role: str, answers: Sequence[RemotingCommand]) -> str:
        remark = answers[0].remark
        return _wrong_code(role, asked, answers[0]) if remark == "NO_MESSAGE_IN_QUEUE" else f"it says {remark}"

    command = pull_request(500 + draft.queue_id, asked, topic=TOPIC_OF_ALL)
    return StrangeRequest("pull_nothing", [step(command)], wrong=wrong)


def _wrong_code(role: str, asked: int, answer: RemotingCommand) -> str:
    """What is wrong with the code of a pull, by what the answer itself says of the queue."""
    if "nextBeginOffset" not in (answer.ext_fields or {}):
        return ""
    header = decode_header(PullMessageResponseHeader, answer)
    begin, end = header.min_offset, header.max_offset
    if asked == end:  # also that of an empty queue
        due = {_NOT_FOUND}
    elif begin <= asked < end:
        due = {_OK if answer.body else _RETRY}
    else:
        # A slave, which may be behind, corrects nobody: there the consumer asks again.
        due = {_MOVED if role == _MASTER else _RETRY}
    return "" if answer.code in due else f"{asked} was asked of {begin} to {end}"


def _pull_badly(draft: Draft) -> StrangeRequest:
    expression, topic = draft.rng.choice(_NO_EXPRESSIONS), draft.rng.choice((STRANGE_TOPIC, TOPIC_OF_ALL))
    return _one(
        "pull_badly", pull_request(draft.queue_id, 0, topic=topic, expression=expression, expression_type="SQL92")
    )


def _pull_some(draft: Draft) -> StrangeRequest:
    """All messages, then those that expressions choose: they must be the same."""
    queue_id, offset = draft.queue_id, draft.rng.choice((0, 0, 3))
    chosen = [draft.rng.choice(_EXPRESSIONS) for _ in range(_EXPRESSIONS_AT_ONCE)]

    def wrong(role: str, answers: Sequence[RemotingCommand]) -> str:
        if any("nextBeginOffset" not in (each.ext_fields or {}) for each in answers):
            return ""
        for (expression, _, chooses), answer in zip(chosen, answers[1:], strict=True):
            both = answers[0], answer
            end = min(decode_header(PullMessageResponseHeader, each).next_begin_offset for each in both)
            every, some = ([each for each in _messages(one.body) if each.queue_offset < end] for one in both)
            due = [each.queue_offset for each in every if chooses(each.properties)]
            found = [each.queue_offset for each in some]
            if found != due:
                return f"{expression} gives {found}, due are {due}"
        return next((wrong for each in answers if (wrong := _wrong_code(role, offset, each))), "")

    steps = [
        step(pull_request(queue_id, offset)),
        *(
            step(pull_request(queue_id, offset, expression=expression, expression_type=kind))
            for expression, kind, _ in chosen
        ),
    ]
    return StrangeRequest("pull_some", steps, judged=len(chosen), wrong=wrong)


def _messages(body: bytes) -> list[StoredMessage]:
    found = []
    while body:
        size = int.from_bytes(body[:4], "big")
        found.append(decode_message(memoryview(body[:size])))
        body = body[size:]
    return found


# --- transactions, and what stands in the log -------------------------------------------------------------------------


def _end_another(draft: Draft) -> StrangeRequest:
    """The end of a transaction that names a message which is no half message, though it looks much like one."""
    forged = {
        "KEYS": draft.key,
        PROPERTY_REAL_TOPIC: f"{STRAY}-real",
        PROPERTY_REAL_QUEUE_ID: "0",
        PROPERTY_PRODUCER_GROUP: "PG",
        "UNIQ_KEY": draft.key,
    }
    body = MARK + draft.key.encode()
    put = taken("end_another", draft.queue_id, body, forged, forged)

    def end(answers: Sequence[RemotingCommand]) -> RemotingCommand | None:
        if "msgId" not in (answers[0].ext_fields or {}):
            return None
        placed = decode_header(SendMessageResponseHeader, answers[0])
        offset = decode_message_id(placed.msg_id)[1]
        header = EndTransactionRequestHeader(
            "PG", placed.queue_offset, offset, TRANSACTION_COMMIT_TYPE, draft.key, False, draft.key
        )
        return command_of(RequestCode.END_TRANSACTION, header)

    return attrs.evolve(put, steps=[*put.steps, end], judged=1)


def _end_nothing(draft: Draft) -> StrangeRequest:
    header = EndTransactionRequestHeader(
        "PG", 0, draft.rng.choice((-1, 1, 50, 2**62)), TRANSACTION_COMMIT_TYPE, draft.key, False, draft.key
    )
    return _one("end_nothing", command_of(RequestCode.END_TRANSACTION, header))


def _view(draft: Draft) -> StrangeRequest:
    """The first message is longer than these offsets."""
    header = ViewMessageRequestHeader(draft.rng.choice((-1, 1, 4, 50, 2**62)))
    return _one("view", command_of(RequestCode.VIEW_MESSAGE_BY_ID, header))


def _query(draft: Draft) -> StrangeRequest:
    header = QueryMessageRequestHeader(STRANGE_TOPIC, f"{STRAY}-{draft.key}", 32, 0, 2**62)
    return _one("query", command_of(RequestCode.QUERY_MESSAGE, header))


def _send_back(draft: Draft) -> StrangeRequest:
    header = ConsumerSendMsgBackRequestHeader(draft.rng.choice((-1, 1, 50, 2**62)), GROUP, 0)
    return _one("send_back", command_of(RequestCode.CONSUMER_SEND_MSG_BACK, header))


# --- locks and groups -------------------------------------------------------------------------------------------------


def _lock(draft: Draft) -> StrangeRequest:
    """One client locks a queue, another one gives it back and asks for it: it is the first one's still."""
    queues = [MessageQueue(broker_name="broker", queue_id=draft.queue_id, topic=STRANGE_TOPIC)]
    group = f"{GROUP}-{draft.key}"

    def lock(client: str) -> Step:
        asked = LockBatchRequestBody(client_id=client, consumer_group=group, mq_set=queues)
        return step(command_of(RequestCode.LOCK_BATCH_MQ, body=encode_body(asked)))

    given_back = UnlockBatchRequestBody(client_id="other", consumer_group=group, mq_set=queues)
    unlock = step(command_of(RequestCode.UNLOCK_BATCH_MQ, body=encode_body(given_back)))

    def wrong(role: str, answers: Sequence[RemotingCommand]) -> str:
        first, other = (decode_body(LockBatchResponseBody, answers[number].body).lock_ok_mq_set for number in (0, 2))
        if role != _MASTER and (first or other):
            return "a slave gives locks"
        return "both have the lock" if first and other else ""

    return StrangeRequest("lock", [lock("first"), unlock, lock("other")], judged=2, wrong=wrong)


def _compare(draft: Draft) -> StrangeRequest:
    """A question about the offsets of all groups but one leaves those of that one."""
    group, offset = f"{GROUP}-{draft.key}", 1 + draft.rng.randrange(9)
    queue = STRANGE_TOPIC, draft.queue_id
    commit = command_of(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(group, *queue, offset))
    compare = command_of(RequestCode.QUERY_CORRECTION_OFFSET, QueryCorrectionOffsetHeader(GROUP, STRANGE_TOPIC, group))
    look = command_of(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader(group, *queue))

    def wrong(_: str, answers: Sequence[RemotingCommand]) -> str:
        found = (answers[2].ext_fields or {}).get("offset")
        return "" if found == str(offset) else f"offset {offset} was committed, and is {found}"

    return StrangeRequest("compare", [step(commit), step(compare), step(look)], judged=2, wrong=wrong)


def _members(draft: Draft) -> StrangeRequest:
    header = GetConsumerListByGroupRequestHeader(f"{STRAY}-{draft.key}")
    return _one("members", command_of(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header))


def _commit(draft: Draft) -> StrangeRequest:
    """An offset for names that nothing can be kept for."""
    topic, group = draft.rng.choice(_LONG_NAMES)
    header = UpdateConsumerOffsetRequestHeader(group, topic, draft.queue_id, 1)
    return _one("commit", command_of(RequestCode.UPDATE_CONSUMER_OFFSET, header))


# --- what operators change ------------------------------------------------------------------------------------------


def _topic(name: str, read: int = 1, write: int = 1, perm: int = 6) -> RemotingCommand:
    header = CreateTopicRequestHeader(name, "TBW102", read, write, perm, "SINGLE_TAG")
    return command_of(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def _bad_new_topic(draft: Draft) -> StrangeRequest:
    stray = f"{STRAY}-{draft.key}"
    return _one(
        "bad_new_topic",
        draft.rng.choice(
            (
                *(_topic("TBW102"), _topic("DefaultCluster"), _topic("rmq_sys_x"), _topic(" "), _topic(f"{STRAY} x")),
                *(_topic(STRAY + "x" * _NAME_MAX), _topic(stray, read=-1), _topic(stray, write=2**31 - 1)),
                *(_topic(stray, perm=8), _topic(stray, perm=-1), _topic(stray, read=16_385)),
            )
        ),
    )


def _new_topic(draft: Draft) -> StrangeRequest:
    return _one("new_topic", _topic(f"Given-{draft.key}", draft.rng.choice((1, 16)), draft.rng.choice((1, 2))))


def _bad_group(draft: Draft) -> StrangeRequest:
    config = SubscriptionGroupConfig(group_name=draft.rng.choice(("", " ", f"{STRAY}@b", STRAY + "x" * _NAME_MAX)))
    return _one("bad_group", command_of(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode_body(config)))


def _group(draft: Draft) -> StrangeRequest:
    config = SubscriptionGroupConfig(group_name=f"Given-{draft.key}")
    return _one("group", command_of(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode_body(config)))


def _delete(draft: Draft) -> StrangeRequest:
    """What is to be deleted is not there: a slave refuses it all the same."""
    name = f"Given-none-{draft.key}"
    header = draft.rng.choice((DeleteTopicRequestHeader(name), DeleteSubscriptionGroupRequestHeader(name)))
    is_topic = isinstance(header, DeleteTopicRequestHeader)
    code = RequestCode.DELETE_TOPIC_IN_BROKER if is_topic else RequestCode.DELETE_SUBSCRIPTIONGROUP
    return _one("delete", command_of(code, header))


def _delete_system(draft: Draft) -> StrangeRequest:
    header = DeleteTopicRequestHeader(draft.rng.choice(("SCHEDULE_TOPIC_XXXX", "TBW102", " ", f"{STRAY}.x")))
    return _one("delete_system", command_of(RequestCode.DELETE_TOPIC_IN_BROKER, header))


def _half_config(draft: Draft) -> StrangeRequest:
    """One key that could be changed, and one that cannot: nothing is."""
    lines = [f"{_GOOD_KEY}=2999", draft.rng.choice(_BAD_KEYS)]
    return _config("half_config", lines if draft.rng.random() < 1 / 2 else lines[::-1])


def _last_term(draft: Draft) -> StrangeRequest:
    """After these terms there could be no other promotion."""
    header = UpdateBrokerConfigRequestHeader(draft.rng.choice((2**63 - 1, 2**62 + 1)))
    return _one("last_term", command_of(RequestCode.UPDATE_BROKER_CONFIG, header))


def _black_config(draft: Draft) -> StrangeRequest:
    return _config("black_config", [f"{_GOOD_KEY}=2999", f"{draft.rng.choice(_BLACK_KEYS)}=x"])


def _config(kind: str, lines: Sequence[str]) -> StrangeRequest:
    shown = step(command_of(RequestCode.GET_BROKER_CONFIG))
    update = command_of(RequestCode.UPDATE_BROKER_CONFIG, body="\n".join(lines).encode())

    def wrong(_: str, answers: Sequence[RemotingCommand]) -> str:
        before, after = (_value(answers[number].body) for number in (0, 2))
        return "" if before == after else f"{_GOOD_KEY} was {before}, and is {after}"

    return StrangeRequest(kind, [shown, step(update), shown], judged=1, wrong=wrong)


def _value(text: bytes) -> str:
    lines = text.decode().splitlines()
    return next((line for line in lines if line.startswith(f"{_GOOD_KEY}=")), "nowhere")


_REFUSED = rule([_ERROR])
#: What is right for each kind of request, and how one is drawn.
ASKS: Mapping[str, tuple[Rule, Drawn]] = {
    "unknown_code": (
        Rule({ResponseCode.REQUEST_CODE_NOT_SUPPORTED}, {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}),
        _unknown_code,
    ),
    "bad_field": (_REFUSED, _bad_field),
    "bad_body": (_REFUSED, _bad_body),
    "pull_queue": (pull_rule([_ERROR], [_ERROR, _NO_TOPIC], needs_topic=True), _pull_queue),
    "pull_topic": (pull_rule([_NO_TOPIC]), _pull_topic),
    "pull_names": (_REFUSED, _pull_names),
    "pull_past": (pull_rule([_MOVED], [_RETRY, _NO_TOPIC], needs_topic=True), _pull_past),
    "pull_before": (pull_rule([_MOVED], [_RETRY, _NO_TOPIC], needs_topic=True), _pull_before),
    "pull_nothing": (pull_rule([_NOT_FOUND, _MOVED], [_NOT_FOUND, _RETRY]), _pull_nothing),
    "pull_badly": (
        pull_rule(
            [ResponseCode.SUBSCRIPTION_PARSE_FAILED],
            [ResponseCode.SUBSCRIPTION_PARSE_FAILED, _NO_TOPIC],
            needs_topic=True,
        ),
        _pull_badly,
    ),
    "pull_some": (
        pull_rule([_OK, _NOT_FOUND, _RETRY, _MOVED], [_OK, _NOT_FOUND, _RETRY, _NO_TOPIC], needs_topic=True),
        _pull_some,
    ),
    # Its end is sent after its message is stored, whatever that is answered.
    "end_another": (
        attrs.evolve(rule([_ERROR], [ResponseCode.SLAVE_NOT_AVAILABLE]), stored={_ERROR}),
        _end_another,
    ),
    "end_nothing": (rule([_ERROR], [ResponseCode.SLAVE_NOT_AVAILABLE]), _end_nothing),
    "view": (_REFUSED, _view),
    "query": (rule([ResponseCode.QUERY_NOT_FOUND]), _query),
    "send_back": (rule([_ERROR], [ResponseCode.SERVICE_NOT_AVAILABLE]), _send_back),
    "lock": (rule([_OK]), _lock),
    "compare": (rule([_OK]), _compare),
    "members": (_REFUSED, _members),
    "commit": (_REFUSED, _commit),
    "bad_new_topic": (_REFUSED, _bad_new_topic),
    "new_topic": (rule([_OK], [_ERROR]), _new_topic),
    "bad_group": (_REFUSED, _bad_group),
    "group": (rule([_OK], [_ERROR]), _group),
    "delete": (rule([_OK], [_ERROR]), _delete),
    "delete_system": (_REFUSED, _delete_system),
    "last_term": (_REFUSED, _last_term),
    "half_config": (_REFUSED, _half_config),
    "black_config": (rule([ResponseCode.NO_PERMISSION]), _black_config),
}
