"""What operators change in the files of accounts, as pure functions from a file's bytes to its new bytes.

Each change gives the file the next `dataVersion`. Comments are lost, as in RocketMQ. What comes out is not checked
here: read it with `parse_plain_acl` before it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from rmq_actors.remoting.plain_acl_file import load_plain_acl_yaml
from rmq_actors.wire.bodies.plain_access import PlainAccessConfig
from rmq_actors.wire.bodies.topic_configs import DataVersion

_WHITE, _ACCOUNTS, _VERSION = "globalWhiteRemoteAddresses", "accounts", "dataVersion"


def has_account(path: str, data: bytes, access_key: str) -> bool:
    """Whether a file has this account. Raises `PlainAclError`."""
    return any(_is_of(account, access_key) for account in _accounts(load_plain_acl_yaml(path, data)))


def with_account(path: str, data: bytes, config: PlainAccessConfig, now_ms: int) -> bytes:
    """The file with an account that is new, or changed in what `config` says. Raises `PlainAclError`."""
    values = dict(load_plain_acl_yaml(path, data))
    accounts = _accounts(values)
    known = next((account for account in accounts if _is_of(account, config.access_key)), {})
    told = {
        "accessKey": config.access_key,
        "secretKey": config.secret_key or None,
        "whiteRemoteAddress": config.white_remote_address,
        "admin": config.admin,
        "defaultTopicPerm": config.default_topic_perm or None,
        "defaultGroupPerm": config.default_group_perm or None,
        "topicPerms": config.topic_perms,
        "groupPerms": config.group_perms,
    }
    changed = {**known, **{key: value for key, value in told.items() if value is not None}}
    values[_ACCOUNTS] = [account for account in accounts if account is not known] + [changed]
    return _written(values, now_ms)


def without_account(path: str, data: bytes, access_key: str, now_ms: int) -> bytes:
    """The file without an account. Raises `PlainAclError`."""
    values = dict(load_plain_acl_yaml(path, data))
    values[_ACCOUNTS] = [account for account in _accounts(values) if not _is_of(account, access_key)]
    return _written(values, now_ms)


def with_white_addresses(path: str, data: bytes, addresses: Sequence[str], now_ms: int) -> bytes:
    """The file with these addresses that need no account, instead of those that it had. Raises `PlainAclError`."""
    values = dict(load_plain_acl_yaml(path, data))
    values[_WHITE] = list(addresses)
    return _written(values, now_ms)


def version_of(path: str, data: bytes) -> DataVersion:
    """The file's version; the first one where it says none. Raises `PlainAclError`."""
    return _version(load_plain_acl_yaml(path, data))


def shown_accounts(path: str, data: bytes) -> tuple[list[str], list[PlainAccessConfig]]:
    """A file's white addresses, and its accounts without their secret keys. Raises `PlainAclError`."""
    values = load_plain_acl_yaml(path, data)
    white = [str(address) for address in values.get(_WHITE) or () if address is not None]  # type: ignore[attr-defined]
    return white, [
        PlainAccessConfig(
            access_key=_text(account.get("accessKey")),
            admin=bool(account.get("admin")),
            default_group_perm=_text(account.get("defaultGroupPerm")),
            default_topic_perm=_text(account.get("defaultTopicPerm")),
            group_perms=_texts(account.get("groupPerms")),
            topic_perms=_texts(account.get("topicPerms")),
            white_remote_address=_text(account.get("whiteRemoteAddress")),
        )
        for account in _accounts(values)
    ]


def _accounts(values: Mapping[Any, Any]) -> list[dict[str, Any]]:
    return list(values.get(_ACCOUNTS) or ())


def _is_of(account: Mapping[str, Any], access_key: str | None) -> bool:
    return str(account.get("accessKey")) == access_key


def _version(values: Mapping[Any, Any]) -> DataVersion:
    said = values.get(_VERSION) or ()
    first = said[0] if isinstance(said, list) and said and isinstance(said[0], dict) else {}
    numbers = (first.get("counter", 0), first.get("timestamp", 0))
    counter, timestamp = (number if isinstance(number, int) else 0 for number in numbers)
    return DataVersion(counter=counter, timestamp=timestamp)


def _written(values: dict[Any, Any], now_ms: int) -> bytes:
    version = _version(values).next_version(now_ms)
    values[_VERSION] = [{"counter": version.counter, "timestamp": version.timestamp}]
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True).encode()


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _texts(values: Sequence[object] | None) -> list[str] | None:
    return None if values is None else [str(value) for value in values]
