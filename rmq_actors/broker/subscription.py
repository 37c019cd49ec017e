"""Which messages of a queue a consumer wants, by its subscription: tags, or an expression of SQL92 (FilterAPI)."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

import attrs

from rmq_actors.store.dispatch.consume_queue_ext import CqExtUnit
from rmq_actors.store.read.get_message import MessageFilter
from rmq_actors.wire.bodies.heartbeat import SubscriptionData
from rmq_actors.wire.java_string import java_hash_code

SUB_ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"
_MASK, _SIGN = 0xFFFFFFFF, 1 << 31


def build_subscription(topic: str, sub_string: str | None, expression_type: str | None) -> SubscriptionData:
    """The subscription of a pull's expression (FilterAPI.build). Raises `ValueError` for a bad expression."""
    if not is_tag_type(expression_type):
        if not sub_string:
            raise ValueError(f"Expression can't be null! {expression_type}")
        return SubscriptionData(topic=topic, sub_string=sub_string, expression_type=str(expression_type))
    if not sub_string or sub_string == SUB_ALL:
        return SubscriptionData(topic=topic, sub_string=SUB_ALL)
    parts = sub_string.split("||")
    if not any(parts):
        raise ValueError("subString split error")
    tags = dict.fromkeys(tag for part in parts if (tag := re.sub(r"^[\x00-\x20]+|[\x00-\x20]+$", "", part)))
    codes = dict.fromkeys(map(java_hash_code, tags))
    return SubscriptionData(topic=topic, sub_string=sub_string, tags_set=list(tags), code_set=list(codes))


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression is one of tags (ExpressionType.isTagType)."""
    return not expression_type or expression_type == TAG


def message_filter(subscription: SubscriptionData) -> MessageFilter | None:
    """The filter of a subscription; None for one that wants every message.

    Raises `ValueError` for an expression that is wrong, or that cannot be compiled here.
    """
    if is_tag_type(subscription.expression_type):
        tags = TagFilter.of(subscription)
        return None if tags.takes_all else tags
    if subscription.expression_type != SQL92:
        raise ValueError(f"there are expressions of type {TAG} and {SQL92}, not {subscription.expression_type!r}")
    try:  # Lark is in an extra, and this alone needs it.
        from rmq_actors.broker.sql92 import Sql92Filter, compile_expression  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ValueError(f"SQL92 needs the extra [server]: pip install 'rmq-actors[server]' ({error})") from error

    return Sql92Filter(compile_expression(subscription.sub_string or ""))


@attrs.frozen
class TagFilter:
    """Lets messages pass whose tags have one of some hash codes, or all: the consumer compares the tags themselves."""

    code_set: AbstractSet[int] | None

    @classmethod
    def of(cls, subscription: SubscriptionData) -> TagFilter:
        """The filter of a subscription by tags."""
        takes_all = subscription.class_filter_mode or subscription.sub_string == SUB_ALL
        return cls(None if takes_all else frozenset(subscription.code_set))

    @property
    def takes_all(self) -> bool:
        """Whether it lets every message pass."""
        return self.code_set is None

    def is_matched_by_consume_queue(self, tags_code: int | None, unit: CqExtUnit | None) -> bool:
        """See `MessageFilter`. A queue has 64 bits for a code of 32."""
        if tags_code is None or self.code_set is None:
            return True
        low = tags_code & _MASK
        return (low - (1 << 32) if low & _SIGN else low) in self.code_set

    def is_matched_by_commit_log(self, record: memoryview) -> bool:
        """See `MessageFilter`."""
        return True
