"""Subscriptions out of expressions (FilterAPI), and whether a message's tags are among those that are subscribed.

The broker compares hash codes of tags, which collide; the consumer compares the tags themselves.
"""

from __future__ import annotations

import re

from rmq_actors.wire.bodies.heartbeat import SubscriptionData
from rmq_actors.wire.java_string import java_hash_code

SUB_ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"
PROPERTY_TAGS = "TAGS"


def build_subscription(
    topic: str, sub_string: str | None, expression_type: str | None, *, sub_version: int = 0
) -> SubscriptionData:
    """The subscription of an expression (FilterAPI.build). Raises `ValueError` for a bad expression."""
    if not is_tag_type(expression_type):
        if not sub_string:
            raise ValueError(f"Expression can't be null! {expression_type}")
        return SubscriptionData(
            topic=topic, sub_string=sub_string, expression_type=str(expression_type), sub_version=sub_version
        )
    if not sub_string or sub_string == SUB_ALL:
        return SubscriptionData(topic=topic, sub_string=SUB_ALL, sub_version=sub_version)
    parts = sub_string.split("||")
    if not any(parts):
        raise ValueError("subString split error")
    tags = dict.fromkeys(tag for part in parts if (tag := re.sub(r"^[\x00-\x20]+|[\x00-\x20]+$", "", part)))
    codes = dict.fromkeys(map(java_hash_code, tags))
    return SubscriptionData(
        topic=topic, sub_string=sub_string, tags_set=list(tags), code_set=list(codes), sub_version=sub_version
    )


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression is one of tags (ExpressionType.isTagType)."""
    return not expression_type or expression_type == TAG


def takes_all(subscription: SubscriptionData) -> bool:
    """Whether messages of a topic are subscribed as the client sees it, whatever tags they have."""
    return not subscription.tags_set or subscription.class_filter_mode


def takes_tags(subscription: SubscriptionData, tags: str | None) -> bool:
    """Whether a message with these tags is subscribed, as the client sees it: none of its tags may be there by hash."""
    return takes_all(subscription) or (tags is not None and tags in subscription.tags_set)
