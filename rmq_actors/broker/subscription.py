"""Which messages of a queue a consumer wants, by its subscription: tags, or an expression of SQL92 (FilterAPI)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import attrs

from rmq_actors.protocols.filter_api import SQL92, SUB_ALL, TAG, is_tag_type
from rmq_actors.store.dispatch.consume_queue_ext import CqExtUnit
from rmq_actors.store.read.get_message import MessageFilter
from rmq_actors.wire.bodies.heartbeat import SubscriptionData

_MASK, _SIGN = 0xFFFFFFFF, 1 << 31


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
        from rmq_actors.broker.sql92 import Sql92Filter  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ValueError(f"SQL92 needs the extra [server]: pip install 'rmq-actors[server]' ({error})") from error

    return Sql92Filter.of(subscription.sub_string or "")


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

    @property
    def is_exhausted(self) -> bool:
        """See `MessageFilter`: it costs next to nothing."""
        return False
