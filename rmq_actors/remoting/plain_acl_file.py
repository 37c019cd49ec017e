"""The accounts of a broker as files (plain_acl.yml): read at its start, and again when they change.

    globalWhiteRemoteAddresses: [10.10.103.*]
    accounts:
      - accessKey: RocketMQ
        secretKey: 12345678
        whiteRemoteAddress: 192.168.0.*
        admin: false
        defaultTopicPerm: DENY
        defaultGroupPerm: SUB
        topicPerms: [topicA=DENY, topicB=PUB|SUB]
        groupPerms: [groupA=SUB]

All files are read together, `conf/plain_acl.yml` and those below `conf/acl`, and take effect together or not at all. An
error names the file, the account and the key, and never quotes a secret. (RocketMQ takes an unknown permission as DENY,
ignores unknown keys, and takes either of two accounts with one access key.)
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence

import attrs
import trio
import yaml

from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.ports.disk import Disk
from rmq_actors.protocols.plain_access import Permission, PlainAccessResource, PlainAccessRules, retry_topic
from rmq_actors.protocols.remote_address import IllegalRemoteAddress, RemoteAddressStrategy, remote_address_strategy
from rmq_actors.tracing.events.remoting import AclLoad
from rmq_actors.tracing.recorder import Tracer

_log = logging.getLogger(__name__)

PLAIN_ACL_FILE = "conf/plain_acl.yml"
ACL_DIRECTORY = "conf/acl"
#: A key that mqadmin keeps there for itself.
_TOOLS_FILE = "tools.yml"

FILE_MAX_BYTES = 1024 * 1024
_FILES_MAX = 1024
_DEPTH_MAX = 16
#: A key must be longer than AclConstants.ACCESS_KEY_MIN_LENGTH and SECRET_KEY_MIN_LENGTH, which are 6.
_KEY_MIN_LENGTH = 7

_PERMISSIONS = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}
_FILE_KEYS = frozenset({"globalWhiteRemoteAddresses", "accounts", "dataVersion"})
_ACCOUNT_KEYS = frozenset(
    {
        "accessKey",
        "secretKey",
        "whiteRemoteAddress",
        "admin",
        "defaultTopicPerm",
        "defaultGroupPerm",
        "topicPerms",
        "groupPerms",
    }
)
#: The C loader, where there is one, is several times as fast.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: How deeply lists and mappings may be nested: such a file has four levels. The C loader crashes on very many.
_NESTING_MAX = 8


class PlainAclError(ValueError):
    """The files of accounts cannot be used; the message names file, account and key, and says why."""


def parse_plain_acl(contents: Mapping[str, bytes], root: str = "") -> PlainAccessRules:
    """The rules of all files together, which are given by path from `root`. Raises `PlainAclError`."""
    accounts: dict[str, PlainAccessResource] = {}
    found_in: dict[str, str] = {}
    white_list: list[RemoteAddressStrategy] = []
    for path_from_root, data in contents.items():
        path = f"{root}{path_from_root}"
        values = load_plain_acl_yaml(path, data)
        white_list += _white_list(f"{path}: globalWhiteRemoteAddresses", values.get("globalWhiteRemoteAddresses"))
        for index, value in enumerate(_list(f"{path}: accounts", values.get("accounts"))):
            where = f"{path}: accounts[{index}]"
            account = _account(where, value)
            other = found_in.setdefault(account.access_key, where)
            if other != where:
                raise PlainAclError(f"{where}: accessKey {account.access_key!r} is that of {other} already")
            accounts[account.access_key] = account
    return PlainAccessRules(accounts, tuple(white_list))


def load_plain_acl_yaml(path: str, data: bytes) -> Mapping[object, object]:
    """What a file says, with the keys that such a file may have. Raises `PlainAclError`."""
    if len(data) > FILE_MAX_BYTES:
        raise PlainAclError(f"{path}: {len(data)} bytes, at most {FILE_MAX_BYTES} are read")
    try:
        _check_nesting(path, data)
        value = yaml.load(data, _Loader)  # noqa: S506 - a safe loader
    except PlainAclError:
        raise
    except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:  # PyYAML's own, of `!!int ''`
        # The error itself quotes the file, and perhaps a secret.
        raise PlainAclError(f"{path}: {_yaml_error(error)}") from None
    if value is None:
        return {}
    return _mapping(path, value, _FILE_KEYS)


def _check_nesting(path: str, data: bytes) -> None:
    """Raise `PlainAclError` for what could crash a loader: deep nesting, and aliases, which multiply."""
    nesting = 0
    for event in yaml.parse(data, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            nesting += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            nesting -= 1
        what = "aliases are not read" if isinstance(event, yaml.AliasEvent) else "nested too deeply"
        if nesting > _NESTING_MAX or isinstance(event, yaml.AliasEvent):
            line = "" if event.start_mark is None else f"line {event.start_mark.line + 1}: "
            raise PlainAclError(f"{path}: {line}{what}")


def _yaml_error(error: Exception) -> str:
    problem = (getattr(error, "problem", None) or getattr(error, "reason", None) or "no YAML").partition("'")[0]
    mark = getattr(error, "problem_mark", None)
    where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    return where + problem.partition('"')[0].strip()


def _account(where: str, value: object) -> PlainAccessResource:
    values = _mapping(where, value, _ACCOUNT_KEYS)
    access_key = _key(f"{where}: accessKey", values.get("accessKey"))
    where = f"{where} ({access_key}):"
    resource_perms = dict(_resource_perms(f"{where} groupPerms", values.get("groupPerms")))
    resource_perms = {retry_topic(group): perm for group, perm in resource_perms.items()}
    resource_perms.update(_resource_perms(f"{where} topicPerms", values.get("topicPerms")))
    admin = values.get("admin")
    if admin is not None and not isinstance(admin, bool):
        raise PlainAclError(f"{where} admin: {admin!r} is neither true nor false")
    white_list = _white_list(f"{where} whiteRemoteAddress", [values.get("whiteRemoteAddress")])
    return PlainAccessResource(
        access_key,
        _key(f"{where} secretKey", values.get("secretKey")),
        white_list[0] if white_list else None,
        admin or False,
        _permission(f"{where} defaultTopicPerm", values.get("defaultTopicPerm")),
        _permission(f"{where} defaultGroupPerm", values.get("defaultGroupPerm")),
        resource_perms,
    )


def _mapping(where: str, value: object, keys: frozenset[str]) -> Mapping[object, object]:
    if not isinstance(value, dict):
        raise PlainAclError(f"{where}: a mapping is expected, not {_kind(value)}")
    for key in value:
        if key not in keys:
            shown = str(key).partition(":")[0]  # what follows the colon may be a secret, if its space is missing
            raise PlainAclError(f"{where}: the key {shown!r} is not one of {', '.join(sorted(keys))}")
    return value


def _list(where: str, value: object) -> Sequence[object]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise PlainAclError(f"{where}: a list is expected, not {_kind(value)}")
    return value


def _key(where: str, value: object) -> str:
    """A key must be text: YAML takes digits alone for a number."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise PlainAclError(f"{where}: text is expected, not {_kind(value)}: put it in quotes")
    text = str(value)
    if len(text) < _KEY_MIN_LENGTH:
        raise PlainAclError(f"{where}: {len(text)} characters, at least {_KEY_MIN_LENGTH} are needed")
    return text


def _white_list(where: str, value: object) -> list[RemoteAddressStrategy]:
    strategies = []
    for entry in _list(where, value):
        if entry is None:
            continue
        if not isinstance(entry, str):
            raise PlainAclError(f"{where}: text is expected, not {_kind(entry)}")
        try:
            strategy = remote_address_strategy(entry)
        except IllegalRemoteAddress as error:
            raise PlainAclError(f"{where}: {error}") from error
        if strategy is not None:
            strategies.append(strategy)
    return strategies


def _permission(where: str, value: object) -> Permission:
    if value is None:
        return Permission.DENY
    permission = _PERMISSIONS.get(value.strip()) if isinstance(value, str) else None
    if permission is None:
        raise PlainAclError(f"{where}: {value!r} is not one of {', '.join(_PERMISSIONS)}")
    return permission


def _resource_perms(where: str, value: object) -> Iterator[tuple[str, Permission]]:
    for entry in _list(where, value):
        name, equals, permission = entry.partition("=") if isinstance(entry, str) else ("", "", "")
        if not name.strip() or not equals:
            raise PlainAclError(f"{where}: {entry!r} is not of the form name=permission")
        yield name.strip(), _permission(f"{where}: {name.strip()}", permission)


def _kind(value: object) -> str:
    return "nothing" if value is None else type(value).__name__


@attrs.define(eq=False, repr=False)
class AclFileWatchService(ServiceThread):
    """A Service that keeps the rules of the files. Until `load` has read them, every request is refused.

    Paths are relative to the disk's root, RocketMQ's home. It looks at the files every `watch_interval_ms`. If they
    cannot be used any more, the rules stay as they were, and the reason is logged and traced once.
    """

    name = "AclFileWatchService"
    _disk: Disk
    _tracer: Tracer
    file: str = PLAIN_ACL_FILE
    directory: str = ACL_DIRECTORY
    watch_interval_ms: int = attrs.field(default=5_000, validator=attrs.validators.ge(1))
    #: What stands before a path where a person reads it: "/" where the operator has given an absolute one.
    _root: str = ""
    rules: PlainAccessRules = attrs.field(factory=PlainAccessRules, init=False)
    #: The files that `rules` come from.
    _contents: Mapping[str, bytes] = attrs.field(factory=dict, init=False)
    _refused: str = attrs.field(default="", init=False)

    @classmethod
    def below(cls, home: str, disk: Disk, tracer: Tracer) -> AclFileWatchService:
        """The files of a RocketMQ with that home directory; empty: the disk's root."""
        directory, root = f"{home.strip('/')}/".removeprefix("/"), "/" if home.startswith("/") else ""
        return cls(disk, tracer, f"{directory}{PLAIN_ACL_FILE}", f"{directory}{ACL_DIRECTORY}", root=root)

    def shown(self, path: str) -> str:
        """A path of one of the files, as a person reads it."""
        return f"{self._root}{path}"

    @property
    def contents(self) -> Mapping[str, bytes]:
        """The files that the rules come from, by path."""
        return self._contents

    def load(self) -> None:
        """Read the files. Raises `PlainAclError`, or `OSError`, and leaves the rules as they were."""
        contents = self._read()
        if contents == self._contents:
            return
        for path, data in contents.items():
            # A program that rewrites a file in place empties it first.
            if not data.strip() and self._contents.get(path, b"").strip():
                raise PlainAclError(f"{self.shown(path)}: is empty now")
        rules = parse_plain_acl(contents, self._root)
        self.rules, self._contents = rules, contents
        files = ", ".join(map(self.shown, contents))
        _log.info("%s: %d accounts in %s", self.name, len(rules.accounts), files)
        self._tracer.emit(AclLoad(status="ok", detail=files))

    async def persist(self, path: str, data: bytes) -> None:
        """Replace one of the files, or make it, and take its rules at once; durable at the end. A checkpoint.

        Raises `PlainAclError` for what could not be used, and `OSError`: then the file is the old one or the new one.
        """
        parse_plain_acl({**self._contents, path: data}, self._root)
        new = f"{path}.tmp"
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(new)  # of a process that has died
        with contextlib.closing(self._disk.open(new, allocate_bytes=len(data), exclusive=True, private=True)) as file:
            file.write_at(0, data)
            await file.sync()
        self._disk.rename(new, path)
        await self._disk.sync_directory(path.rpartition("/")[0])
        self.load()

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Look at the files; the rules stay when it ends."""
        task_status.started()
        while True:
            await trio.sleep(self.watch_interval_ms / 1000)
            try:
                self.load()
            except (PlainAclError, OSError) as error:
                self._keep(str(error))
            else:
                self._refused = ""

    def _keep(self, reason: str) -> None:
        if reason != self._refused:
            self._refused = reason
            _log.error("%s: the rules stay as they were: %s", self.name, reason)
            self._tracer.emit(AclLoad(status="kept", detail=reason[:200]))

    def _read(self) -> dict[str, bytes]:
        paths = list(self._paths_below(self.directory, _DEPTH_MAX))
        if self.file not in paths and self._disk.exists(self.file):
            paths.append(self.file)
        if not paths:
            raise PlainAclError(
                f"access control needs {self.shown(self.file)}, or files in {self.shown(self.directory)}: "
                "there are none (aclEnable=true; rocketmqHome says where)"
            )
        if len(paths) > _FILES_MAX:
            raise PlainAclError(f"{self.shown(self.directory)}: {len(paths)} files, at most {_FILES_MAX} are read")
        return {path: self._read_file(path) for path in paths}

    def _paths_below(self, directory: str, depth: int) -> Iterator[str]:
        for name in self._disk.list(directory) if depth else ():
            path = f"{directory}/{name}"
            if name.endswith((".yml", ".yaml")):
                if path != f"{self.directory}/{_TOOLS_FILE}":
                    yield path
            else:
                yield from self._paths_below(path, depth - 1)

    def _read_file(self, path: str) -> bytes:
        with contextlib.closing(self._disk.open(path, read_only=True)) as file:
            if file.size_bytes > FILE_MAX_BYTES:
                raise PlainAclError(f"{self.shown(path)}: {file.size_bytes} bytes, at most {FILE_MAX_BYTES} are read")
            return bytes(file.map()) if file.size_bytes else b""
