"""Makes settings of RocketMQ's properties files: a broker.conf or namesrv.conf works unchanged.

RocketMQ ignores unknown keys, and values that it cannot read. Here a bad value is an error. So is an unknown key that
resembles a known one, and a key whose effect would be missed (`refused_keys`). Every other unknown key is reported:
either RocketMQ has it, and it has no effect here, or nobody knows it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import attrs

from rmq_actors.settings.configure import ConfigurationError, Keys, Properties, configure, known_keys
from rmq_actors.settings.misspelt_keys import meant_key
from rmq_actors.settings.properties_text import TEXT_MAX_CHARS, parse_properties
from rmq_actors.settings.refused_keys import why_refused
from rmq_actors.settings.rocketmq_keys import ROCKETMQ_5_KEYS, ROCKETMQ_KEYS

ConfigT = TypeVar("ConfigT", bound=attrs.AttrsInstance)

#: In ISO 8859-1 a character is a byte.
FILE_MAX_BYTES = TEXT_MAX_CHARS
#: Of UTF-8 and UTF-16: editors write them, and Java would take them for a part of the first key.
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


@attrs.frozen
class LoadedFile(Generic[ConfigT]):
    """A file's settings, everything that it says, and the keys in it that are not settings."""

    config: ConfigT
    properties: Properties
    unknown: tuple[str, ...]

    @property
    def warnings(self) -> list[str]:
        """One line for each key without effect: where it stands, and whether RocketMQ knows it.

        Then come the `warnings` of the settings, if they have any.
        """
        own: Sequence[str] = getattr(self.config, "warnings", ())
        return [*(_warning(self.properties, key) for key in self.unknown), *own]


def read_properties_file(path: Path) -> Properties:
    """The properties of a file, in ISO 8859-1 as Java reads it. Raises `ConfigurationError` naming the file."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > FILE_MAX_BYTES:
        raise ConfigurationError(f"{path} has more than {FILE_MAX_BYTES} bytes")
    if b"\0" in data or data.startswith(_BYTE_ORDER_MARKS):
        raise ConfigurationError(f"{path} is no text in ISO 8859-1: it has a byte order mark or bytes 0, as UTF-16 has")
    return parse_properties(data.decode("latin-1"), str(path))


def load_config_file(
    path: Path, base: ConfigT, keys: Keys | None = None, *, also_known: Collection[str] = ()
) -> LoadedFile[ConfigT]:
    """`base` changed by a file. `also_known`: keys that somebody else reads.

    Raises `ConfigurationError`, also for a key that resembles a known one, and for a key of RocketMQ whose effect would
    be missed.
    """
    properties = read_properties_file(path)
    known = {*known_keys(type(base), keys), *also_known}
    unknown = tuple(key for key in properties.values if key not in known)
    problems = {key: problem for key in unknown if (problem := _problem(properties, key, known)) is not None}
    try:
        config = configure(base, properties, keys)
    except ConfigurationError as error:
        # A missing key may be there under another name.
        told = [
            problems.get(key) or _warning(properties, key)
            for key in unknown
            if key in problems or key not in _ROCKETMQ_S
        ]
        raise ConfigurationError("; ".join([str(error), *told])) from error
    if problems:
        raise ConfigurationError("; ".join(problems.values()))
    return LoadedFile(config, properties, unknown)


def _problem(properties: Properties, key: str, known: Collection[str]) -> str | None:
    """Why a key that is not a setting prevents the start; None if it does not."""
    reason = why_refused(key, properties.values[key])
    if reason is not None:
        return f"{properties.where(key)}: {key}={properties.values[key]}: {reason}"
    meant = None if key in _ROCKETMQ_S else meant_key(key, known)
    return None if meant is None else f"{properties.where(key)}: {key} is unknown: did you mean {meant}?"


def _warning(properties: Properties, key: str) -> str:
    return f"{properties.where(key)}: {key} {_WITHOUT_EFFECT if key in _ROCKETMQ_S else _UNKNOWN}"


_ROCKETMQ_S = ROCKETMQ_KEYS | ROCKETMQ_5_KEYS
_WITHOUT_EFFECT = "has no effect here"
_UNKNOWN = "is unknown, here and to RocketMQ"
