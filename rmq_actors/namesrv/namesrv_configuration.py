"""The settings of a running name server, which a request may change (Configuration)."""

from __future__ import annotations

import attrs
import trio

from rmq_actors.namesrv.config import NAMESRV_KEYS, NamesrvConfig
from rmq_actors.settings.configure import (
    ConfigurationError,
    Properties,
    configure,
    known_keys,
    to_properties,
    unknown_keys,
)
from rmq_actors.settings.properties_text import format_properties
from rmq_actors.settings.rocketmq_keys import ROCKETMQ_KEYS
from rmq_actors.store.files.json_file import ConfigFile

#: What no request may change, whatever configBlackList says.
_NEVER_CHANGED = (
    *("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"),
    *("tls.config.file", "tls.enable", "tls.server.mode"),
)
_KNOWN = frozenset(known_keys(NamesrvConfig, NAMESRV_KEYS))


class ForbiddenKey(ConfigurationError):
    """A key of the black list."""


@attrs.define(eq=False, repr=False)
class Configuration:
    """The present settings, and the file that changes are written to.

    `other_properties` have no effect here, except those of TLS, but are kept in the file.
    """

    config: NamesrvConfig
    _file: ConfigFile
    _other_properties: dict[str, str] = attrs.field(factory=dict[str, str])
    _changing: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    def text(self) -> str:
        """All properties, one per line (getAllConfigsFormatString)."""
        return self._text(self.config, self._other_properties)

    async def update(self, properties: Properties) -> list[str]:
        """Take new values, write all to the file, and return the keys that changed. A checkpoint.

        Raises `ForbiddenKey`, `ConfigurationError` for keys that nobody knows and for values that cannot be taken,
        `OSError`: nothing was changed.
        """
        black_list = {*_NEVER_CHANGED, *self.config.config_black_list.split(";")}
        if forbidden := sorted(black_list & properties.values.keys()):
            raise ForbiddenKey(f"{properties.source}: {forbidden[0]} cannot be changed")
        if unknown := unknown_keys(properties, _KNOWN | ROCKETMQ_KEYS | self._other_properties.keys()):
            raise ConfigurationError(f"{unknown[0]} is unknown")
        async with self._changing:
            config = configure(self.config, properties, NAMESRV_KEYS)
            others = {**self._other_properties, **{k: v for k, v in properties.values.items() if k not in _KNOWN}}
            before, after = to_properties(self.config, NAMESRV_KEYS), to_properties(config, NAMESRV_KEYS)
            await self._file.persist_text(self._text(config, others).encode("latin-1"))
            self.config, self._other_properties = config, others
        return [key for key in after if after[key] != before.get(key)]

    @staticmethod
    def _text(config: NamesrvConfig, others: dict[str, str]) -> str:
        return format_properties({**to_properties(config, NAMESRV_KEYS), **others})
