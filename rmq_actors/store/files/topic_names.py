"""Which topics can be the names of directories, and which are light message queues."""

from __future__ import annotations

LMQ_PREFIX = "%LMQ%"
#: How long a file name may be, in bytes of UTF-8.
_FILE_NAME_BYTES_MAX = 255


class IllegalTopic(ValueError):
    """A topic that cannot be the name of a directory."""


def check_topic(topic: str) -> None:
    """Raise `IllegalTopic` if `topic` cannot be the name of one directory."""
    if topic in {"", ".", ".."} or "/" in topic or "\0" in topic:
        raise IllegalTopic(f"topic {topic!r} cannot be a directory's name")
    try:
        size = len(topic.encode())
    except UnicodeEncodeError as error:
        raise IllegalTopic(f"topic {topic!r} is no Unicode text: {error}") from error
    if size > _FILE_NAME_BYTES_MAX:
        raise IllegalTopic(f"topic {topic!r} is {size} bytes long, a directory's name at most {_FILE_NAME_BYTES_MAX}")


def is_lmq(topic: str) -> bool:
    """Whether a topic is a light message queue (MixAll.isLmq)."""
    return topic.startswith(LMQ_PREFIX)
