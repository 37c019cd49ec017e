"""The keys that the index finds a record by, and their hash (IndexService.buildKey, IndexFile.indexKeyHashMethod)."""

from __future__ import annotations

from functools import lru_cache

from rmq_actors.wire.dispatch_request import PROPERTY_KEYS, PROPERTY_UNIQ_KEY, DispatchRequest
from rmq_actors.wire.java_string import java_hash_code

KEY_SEPARATOR = " "
_INT_MAX = 0x7FFF_FFFF


@lru_cache(maxsize=4096)
def index_topic_code(topic: str) -> int:
    """The hash code of what stands before each key of a topic: int32."""
    return java_hash_code(f"{topic}#")


def index_key_hash(topic: str, key: str) -> int:
    """The hash of a topic's key, 0 to 2^31 - 1."""
    code = abs(java_hash_code(key, index_topic_code(topic)))
    return code if code <= _INT_MAX else 0


def index_keys(request: DispatchRequest) -> list[str]:
    """The keys that a record is found by, in the order of their entries; one that stands twice is there twice."""
    properties = request.properties
    unique_key = properties.get(PROPERTY_UNIQ_KEY)
    keys = properties.get(PROPERTY_KEYS)
    found = [] if unique_key is None else [unique_key]
    if keys:
        found += [key for key in keys.split(KEY_SEPARATOR) if key] if KEY_SEPARATOR in keys else [keys]
    return found
