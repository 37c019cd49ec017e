"""The answer to a pull, by what was read (PullMessageProcessor's switches). Pure."""

from __future__ import annotations

from typing import NamedTuple

import attrs

from rmq_actors.store.read.get_message import GetMessageResult, GetMessageStatus
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.response_code import ResponseCode

MASTER_ID = 0

_FOUND, _NOT_FOUND = ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND
_RETRY, _MOVED = ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED
_CODES = {
    GetMessageStatus.FOUND: _FOUND,
    GetMessageStatus.MESSAGE_WAS_REMOVING: _RETRY,
    GetMessageStatus.NO_MATCHED_MESSAGE: _RETRY,
    GetMessageStatus.OFFSET_FOUND_NULL: _NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: _NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: _MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: _MOVED,
}


class PullAnswer(NamedTuple):
    """The code, and the broker that the consumer should ask next."""

    code: ResponseCode
    suggest_which_broker_id: int


@attrs.frozen
class Puller:
    """The side that answers: its role, and the settings that say where consumers are sent."""

    is_slave: bool
    slave_read_enable: bool
    #: Whether offsets out of range are corrected here: a slave may just lag behind its master.
    corrects_offsets: bool


def pull_answer(
    result: GetMessageResult, asked_offset: int, group: SubscriptionGroupConfig, puller: Puller
) -> PullAnswer:
    """As 4.9 answers: slaveReadEnable=false does not keep a slave from serving, it only says "ask the master"."""
    code = _CODES.get(result.status)
    if code is None:  # there is no such queue, or nothing in it yet
        code = _MOVED if asked_offset else _NOT_FOUND
    suggested = MASTER_ID
    if puller.slave_read_enable:
        suggested = group.which_broker_when_consume_slowly if result.suggest_pulling_from_slave else group.broker_id
    if code is _MOVED and not puller.corrects_offsets:
        return PullAnswer(_RETRY, group.broker_id)
    return PullAnswer(code, suggested)
