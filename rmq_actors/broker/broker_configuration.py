"""The settings of a running broker, which a request may change, and the file that they are kept in (Configuration)."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rmq_actors.broker.config import BROKER_KEYS, MASTER_ID, BrokerConfig
from rmq_actors.broker.quotas import Quotas
from rmq_actors.ports.disk import Disk
from rmq_actors.ports.wall_clock import WallClock
from rmq_actors.settings.configure import ConfigurationError, Properties, configure, known_keys, to_properties
from rmq_actors.settings.properties_text import TEXT_MAX_CHARS, format_properties, parse_properties
from rmq_actors.settings.rocketmq_keys import ROCKETMQ_KEYS
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.files.json_file import ConfigFile
from rmq_actors.wire.bodies.topic_configs import DataVersion

#: What no request may change, whatever configBlackList says.
_NEVER_CHANGED = frozenset({"brokerConfigPath", "configBlackList", "rocketmqHome"})

#: Settings that are read each time they are needed: a change takes effect at once.
_LOOKED_AT = frozenset(
    {
        *("haTruncateOnDivergence", "disableConsumeIfConsumerReadSlowly", "consumerFallbehindThreshold"),
        *("autoCreateTopicEnable", "autoCreateSubscriptionGroup", "rejectTransactionMessage", "slaveReadEnable"),
        *("longPollingEnable", "shortPollingTimeMills", "storeReplyMessageEnable", "sendThreadPoolQueueCapacity"),
        *("regionId", "traceOn", "brokerPermission", "metricsTopicsMax"),
        *known_keys(Quotas),
    }
)
#: Which master a slave follows.
_OF_SLAVES = frozenset({"haMasterAddress", "masterAddr"})
#: Settings that take effect once the store and the services of the role are opened again.
_OPENED_WITH = frozenset(
    {
        *("brokerRole", "brokerId"),
        *("flushDiskType", "syncFlushTimeout", "slaveTimeout", "haSlaveFallbehindMax"),
        *("haSendHeartbeatInterval", "haHousekeepingInterval", "haTransferBatchSize", "haConnectionsMax"),
        *("haConnectionsMaxPerAddress", "haHandshakesMax"),
        *("syncFromLastFile", "totalReplicas", "inSyncReplicas", "minInSyncReplicas", "enableAutoInSyncReplicas"),
        *("flushIntervalCommitLog", "flushCommitLogLeastPages", "flushCommitLogThoroughInterval"),
        *("maxMessageSize", "osPageCacheBusyTimeOutMills", "waitingPutsMax"),
        *("transactionCheckInterval", "transactionTimeOut", "transactionCheckMax"),
        *("deleteWhen", "fileReservedTime", "cleanFileForciblyEnable"),
        *("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio"),
    }
)
CHANGED_AT_RUN_TIME = _LOOKED_AT | _OF_SLAVES | _OPENED_WITH

_KNOWN = frozenset(known_keys(BrokerConfig, BROKER_KEYS))
_MASTERS = (BrokerRole.ASYNC_MASTER.value, BrokerRole.SYNC_MASTER.value)
#: How much of a refused key is shown, as a peer has sent it.
_SHOWN_CHARS = 100


class SettingsUnreadable(ConfigurationError):
    """The file of the settings cannot be read any more, or it says what is no setting."""


class ForbiddenKey(ConfigurationError):
    """A key of the black list."""


def updated_config(config: BrokerConfig, properties: Properties) -> BrokerConfig:
    """`config` with new settings, all of them or none.

    brokerRole brings the brokerId that belongs to it, as in `change_role`, unless that is given too. Raises
    `ForbiddenKey`, and `ConfigurationError` naming each key that cannot be changed, or not to this value.
    """
    if forbidden := sorted((_NEVER_CHANGED | {*config.config_black_list.split(";")}) & properties.values.keys()):
        raise ForbiddenKey(f"{properties.source}: {forbidden[0]} cannot be changed")
    if refused := [_why_not(key) for key in properties.values if key not in CHANGED_AT_RUN_TIME]:
        raise ConfigurationError(f"{properties.source}: {'; '.join(refused)}")
    values = dict(properties.values)
    role = values.get("brokerRole", "").strip()
    if role in _MASTERS:
        values.setdefault("brokerId", str(MASTER_ID))
    elif role:
        values.setdefault("brokerId", str(config.broker_id or MASTER_ID + 1))
    updated = configure(config, Properties(properties.source, values), BROKER_KEYS)
    if "brokerId" in values and int(values["brokerId"]) != updated.broker_id:
        raise ConfigurationError(f"{properties.source}: brokerId={values['brokerId']}: a master's is {MASTER_ID}")
    return updated


def reopens_store(old: BrokerConfig, new: BrokerConfig) -> bool:
    """Whether a change takes effect only when the store is opened again."""
    before, after = to_properties(old, BROKER_KEYS), to_properties(new, BROKER_KEYS)
    passed_over = _LOOKED_AT if old.is_slave or new.is_slave else _LOOKED_AT | _OF_SLAVES
    return any(before.get(key) != after.get(key) for key in _KNOWN - passed_over)


def _why_not(key: str) -> str:
    if key in _KNOWN:
        return f"{key} is read at the start alone: write it into the file of the settings, and start the broker again"
    shown = key[:_SHOWN_CHARS]
    return f"{shown} has no effect here" if key in ROCKETMQ_KEYS else f"{shown} is unknown"


@attrs.define(eq=False, repr=False)
class SettingsFile(ConfigFile):
    """The file of the settings, which an operator may edit at any time."""

    def read(self) -> Properties | None:
        """What it says now; None: there is no such file. Raises `SettingsUnreadable` naming the file, and the line."""
        if not self._disk.exists(self.path):
            return None
        source = f"/{self.path}"
        data, reason = self.look_at(self.path, bytes)
        # An operator may have written it since, without a sync: sync it before it becomes the .bak.
        self._content = "unknown" if data is None else "read"
        if data is None:
            raise SettingsUnreadable(f"{source} {reason}")
        try:
            return parse_properties(data.decode("latin-1"), source)
        except ConfigurationError as error:
            raise SettingsUnreadable(str(error)) from error


@attrs.frozen(eq=False)
class BrokerFiles:
    """What a broker has outside of its store.

    `home` is the disk that rocketmqHome begins at. `config_file`, if there is one, had the `properties` at the start,
    and gets what a request changes; `others` are shown beside the settings: where the store is, and what means nothing
    here.
    """

    home: Disk
    config_file: SettingsFile | None
    properties: Mapping[str, str]
    others: Mapping[str, str]


@attrs.define(eq=False, repr=False)
class Configuration:
    """The settings as operators see them, and as the file keeps them. Without `files` there is no file."""

    _wall_clock: WallClock
    _files: BrokerFiles | None = None
    #: Counts the changes since the start.
    version: DataVersion = attrs.field(factory=DataVersion, init=False)
    #: What the file said last; it is written again if somebody has removed the file.
    _properties: dict[str, str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._properties = {} if self._files is None else dict(self._files.properties)

    def text(self, config: BrokerConfig) -> str:
        """All properties, one per line (getAllConfigsFormatString)."""
        others = {} if self._files is None else self._files.others
        return format_properties({**to_properties(config, BROKER_KEYS), **others})

    async def why_not_writable(self) -> str | None:
        """Why no setting could be written into the file; None if one could. A checkpoint."""
        file = None if self._files is None else self._files.config_file
        if file is None:
            return None
        try:
            file.read()
            await file.check_writable()
        except (OSError, ValueError) as error:
            return f"it cannot write its settings: {error}"
        return None

    async def persist(self, keys: Mapping[str, str], config: BrokerConfig) -> None:
        """Write `keys` into the file, as `config` has them, beside all that it says now; durable at the end.

        A checkpoint. Raises `OSError`: then the file is the old one or the new one. Raises `SettingsUnreadable`, and
        `ValueError` if the file would be too long: then it is the old one.
        """
        told = {*keys, "brokerId"} if "brokerRole" in keys else {*keys}
        values = to_properties(config, BROKER_KEYS)
        changed = {key: values.get(key, "") for key in sorted(told)}
        file = None if self._files is None else self._files.config_file
        said = None if file is None else file.read()
        properties = {**(self._properties if said is None else said.values), **changed}
        if file is not None:
            await file.persist_text(format_properties(properties).encode("latin-1"))
        self._properties = properties
        self.version = self.version.next_version(self._wall_clock.now_ms())


def config_file(disk: Disk, path: str) -> SettingsFile:
    """The file of the settings, by its path from the disk's root. What stands in it becomes the `.bak` of a change."""
    file = SettingsFile(disk, path.lstrip("/"), TEXT_MAX_CHARS)
    file.load_text(bytes)
    return file
