"""Where things are in a store directory: RocketMQ's names (StorePathConfigHelper)."""

from __future__ import annotations

COMMIT_LOG_DIRECTORY = "commitlog"
CONSUME_QUEUE_DIRECTORY = "consumequeue"
CONSUME_QUEUE_EXT_DIRECTORY = "consumequeue_ext"
INDEX_DIRECTORY = "index"
CONFIG_DIRECTORY = "config"
#: RocketMQ 3.1.9's, for its TransactionStateService.
TRAN_STATE_TABLE_DIRECTORY = "transaction/statetable"
TRAN_REDO_LOG_DIRECTORY = "transaction/redolog"
CHECKPOINT_FILE = "checkpoint"
#: Is there while a store runs, and after a crash.
ABORT_FILE = "abort"
LOCK_FILE = "lock"
TOPICS_FILE = f"{CONFIG_DIRECTORY}/topics.json"
SUBSCRIPTION_GROUP_FILE = f"{CONFIG_DIRECTORY}/subscriptionGroup.json"
CONSUMER_OFFSET_FILE = f"{CONFIG_DIRECTORY}/consumerOffset.json"
DELAY_OFFSET_FILE = f"{CONFIG_DIRECTORY}/delayOffset.json"
#: Not RocketMQ's: see `store.term_file`.
TERM_FILE = f"{CONFIG_DIRECTORY}/replicationTerm.json"
#: Not RocketMQ's: see `store.files.deleted_topics`.
DELETED_TOPICS_FILE = f"{CONFIG_DIRECTORY}/deletedTopics.json"
#: Not RocketMQ's: see `store.files.exchange_file`.
EXCHANGE_FILE = f"{CONFIG_DIRECTORY}/roleExchange.json"
#: Not RocketMQ's: whole records that a recovery had to cut, for a person to look at.
CUT_DIRECTORY = "cut"

_OFFSET_DIGITS = 20


def file_name(from_offset: int) -> str:
    """A file of the log is named after the offset of its first byte, in 20 digits (UtilAll.offset2FileName)."""
    return f"{from_offset:0{_OFFSET_DIGITS}d}"


def parse_file_name(name: str) -> int | None:
    """The offset that a file name stands for, or None if it is not such a name."""
    return int(name) if len(name) == _OFFSET_DIGITS and name.isascii() and name.isdigit() else None
