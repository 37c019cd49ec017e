"""What strangers ask that needs something before it: `STATES` has a kind, what is right for it, and how one is drawn.

A setting that was changed, a client that is there and says nothing, one that has left a group, light queues, and a
table that is full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from rmq_actors.protocols.transactional_messages import PROPERTY_PRODUCER_GROUP, PROPERTY_TRANSACTION_PREPARED
from rmq_actors.testing.strange_asks import pull_request
from rmq_actors.testing.strange_puts import put_request, taken
from rmq_actors.testing.strange_requests import (
    CLIENT_GROUPS_MAX,
    DEAF,
    Draft,
    Drawn,
    Left,
    Rule,
    StrangeRequest,
    command_of,
    rule,
    step,
)
from rmq_actors.testing.thin_client import make_topic_request
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.heartbeat import HeartbeatData, ProducerData
from rmq_actors.wire.dispatch_request import HALF_TOPIC, PROPERTY_INNER_MULTI_DISPATCH
from rmq_actors.wire.headers.clients import GetConsumerRunningInfoRequestHeader, UnregisterClientRequestHeader
from rmq_actors.wire.record import TRANSACTION_PREPARED_TYPE
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_OK, _ERROR = ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR
_NOT_AVAILABLE = ResponseCode.SERVICE_NOT_AVAILABLE
_HOLD_MS = 2_000


def _half_refused(draft: Draft) -> StrangeRequest:
    """A broker is told to take no transactional messages, and is sent one."""
    asked = {**draft.properties, PROPERTY_TRANSACTION_PREPARED: "true", PROPERTY_PRODUCER_GROUP: f"Half-{draft.key}"}
    change = command_of(RequestCode.UPDATE_BROKER_CONFIG, body=b"rejectTransactionMessage=true")
    put = taken("half_refused", draft.queue_id, draft.body, asked, asked, sys_flag=TRANSACTION_PREPARED_TYPE)
    # A broker that has started again meanwhile takes it.
    leaves = [attrs.evolve(left, topic=HALF_TOPIC, queue_id=-1) for left in put.leaves]
    return attrs.evolve(put, steps=[step(change), *put.steps], judged=1, leaves=leaves)


def _many_groups(draft: Draft) -> StrangeRequest:
    """A client that says that it is in more groups than all clients together may be."""
    groups = [ProducerData(group_name=f"{draft.key}-{number}") for number in range(CLIENT_GROUPS_MAX + 1)]
    beat = HeartbeatData(client_id=f"many-{draft.key}", consumer_data_set=[], producer_data_set=groups)
    request = command_of(RequestCode.HEART_BEAT, body=encode_body(beat))
    return StrangeRequest("many_groups", [step(request)])


def _ask_deaf(draft: Draft) -> StrangeRequest:
    """What a client does that may be there, and never answers: nobody else waits for it."""
    client = f"{DEAF}-{draft.rng.randrange(3)}"
    header = GetConsumerRunningInfoRequestHeader("ChaosGroup", client)
    return StrangeRequest("ask_deaf", [step(command_of(RequestCode.GET_CONSUMER_RUNNING_INFO, header))])


def _reply_to_me(draft: Draft) -> StrangeRequest:
    """A client that has left one of its groups is found by the other one."""
    client, groups = f"asker-{draft.key}", [f"Asks-{draft.key}", f"Also-{draft.key}"]
    producers = [ProducerData(group_name=group) for group in groups]
    beat = HeartbeatData(client_id=client, consumer_data_set=[], producer_data_set=producers)
    properties, queue_id, body = {**draft.properties, "REPLY_TO_CLIENT": client}, draft.queue_id, draft.body
    reply = put_request(body, queue_id, properties)
    reply.code = RequestCode.SEND_REPLY_MESSAGE_V2
    steps = [
        command_of(RequestCode.HEART_BEAT, body=encode_body(beat)),
        command_of(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader(client, groups[0])),
        reply,
    ]
    left = Left.of(queue_id, body, properties)
    return StrangeRequest("reply_to_me", [step(each) for each in steps], [left], judged=2)


def _light(draft: Draft) -> StrangeRequest:
    """A message of a light queue: a consumer of that one gets it, too."""
    light = f"%LMQ%{draft.key}"
    properties = {**draft.properties, PROPERTY_INNER_MULTI_DISPATCH: light}
    put = taken("light", draft.queue_id, draft.body, properties, properties)
    make = make_topic_request(light)
    body = put.leaves[0].body

    def pull(answers: Sequence[RemotingCommand]) -> RemotingCommand | None:
        is_seen_soon = answers[0].code == _OK and answers[1].code == _OK
        return pull_request(0, 0, topic=light, hold_ms=_HOLD_MS) if is_seen_soon else None

    def wrong(_: str, answers: Sequence[RemotingCommand]) -> str:
        return "" if body in answers[2].body else "the queue has another message"

    return attrs.evolve(put, steps=[step(make), *put.steps, pull], judged=2, wrong=wrong)


#: What is right for each kind of request, and how one is drawn.
STATES: Mapping[str, tuple[Rule, Drawn]] = {
    "half_refused": (
        attrs.evolve(rule([ResponseCode.NO_PERMISSION], [_NOT_AVAILABLE], needs_topic=True), is_by_setting=True),
        _half_refused,
    ),
    "many_groups": (rule([_ERROR]), _many_groups),
    "ask_deaf": (attrs.evolve(rule([_ERROR]), may_be_silent=True), _ask_deaf),
    "reply_to_me": (rule([_OK], [_NOT_AVAILABLE], needs_topic=True), _reply_to_me),
    "light": (rule([_OK]), _light),
}
