"""The TLS settings of a process: a few in its own configuration, the others in a separate file (tls.config.file).

The file is separate because it holds passwords: a name server or broker shows its configuration to whoever asks
(GET_NAMESRV_CONFIG, GET_BROKER_CONFIG).
"""

from __future__ import annotations

from pathlib import Path

from rmq_actors.embedding.properties_file import read_properties_file
from rmq_actors.remoting.tls import TLS_CONFIG_FILE, TlsConfig, TlsConfigError
from rmq_actors.settings.configure import Properties

#: The TLS settings of a namesrv.conf or broker.conf; in RocketMQ they are system properties.
TLS_KEYS = ("tls.server.mode", "tls.enable", TLS_CONFIG_FILE)
#: The file that is read if no other is named and this one is there.
DEFAULT_TLS_CONFIG_FILE = "/etc/rocketmq/tls.properties"


def load_tls_config(
    properties: Properties, default_file: str = DEFAULT_TLS_CONFIG_FILE, *, is_needed: bool = False
) -> TlsConfig:
    """The settings of a process by its own configuration. Raises `ConfigurationError` naming file and key.

    If TLS is off, no file is read, unless something else needs it.
    """
    for key in properties.values:
        if key.startswith("tls.") and key not in TLS_KEYS:
            raise TlsConfigError(
                f"{properties.where(key)}: {key} belongs into the file that {TLS_CONFIG_FILE} names: this one is shown "
                "to whoever asks for the configuration"
            )
    own = TlsConfig.from_properties(properties)
    if own == TlsConfig() and not is_needed:
        return own
    named = properties.values.get(TLS_CONFIG_FILE)
    path = Path(named or default_file)
    if not named and not path.exists():
        return own
    both = read_properties_file(path)
    for key in TLS_KEYS:
        if key in both.values:
            raise TlsConfigError(f"{both.where(key)}: {key} is set in {properties.source}, not here")
        if key in properties.values:
            both = Properties(both.source, {**both.values, key: properties.values[key]}, both.lines)
    return TlsConfig.from_properties(both)
