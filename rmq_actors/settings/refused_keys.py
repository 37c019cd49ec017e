"""Keys of RocketMQ that must not be ignored: without their effect, messages or promises would be lost silently.

RocketMQ 4.9 and 5 know them; this project lacks what they turn on. All other keys without effect here change speed, or
things that this project does not serve at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


def _is_true(value: str) -> bool:
    return value.strip().lower() == "true"


def _is_set(value: str) -> bool:
    return bool(value.strip())


def _is_no_file_store(value: str) -> bool:
    return value.strip().lower() not in {"", "default"}


#: Which values are refused, and why, by key.
REFUSED_KEYS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "enableDLegerCommitLog": (
        _is_true,
        "there is no DLedger here, an acknowledged message would be on one broker alone: use brokerRole=SYNC_MASTER",
    ),
    "duplicationEnable": (_is_true, "there is no confirmed offset here, readers would get what is not confirmed yet"),
    "messageStorePlugIn": (_is_set, "there are no store plug-ins here, what they keep would be missing"),
    "readOnlyCommitLogStorePaths": (
        _is_set,
        "the log is in one directory here, messages in the others would be missing",
    ),
    "useTLS": (_is_true, "connections of this side would be plain: set tls.enable=true"),
    "enableControllerMode": (
        _is_true,
        "there is no controller here, it would elect a master that this broker knows nothing of",
    ),
    "storeType": (_is_no_file_store, "queues are kept in files here, those in RocksDB would be missing"),
    "authenticationEnabled": (_is_true, "there is no authentication of RocketMQ 5 here, anybody could connect"),
    "authorizationEnabled": (_is_true, "there is no authorization of RocketMQ 5 here, anybody could do anything"),
}


def why_refused(key: str, value: str) -> str | None:
    """Why a start with this setting is refused; None: it is not."""
    is_refused, reason = REFUSED_KEYS.get(key, (None, ""))
    return reason if is_refused is not None and is_refused(value) else None
