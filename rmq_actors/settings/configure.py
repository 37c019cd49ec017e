"""Turns RocketMQ's properties into settings, and back (Configuration, MixAll.properties2Object, object2Properties).

A setting is a field of an attrs class. Its property is RocketMQ's key: the field's name in camelCase without the unit
at its end, so `flush_interval_commit_log_ms` is `flushIntervalCommitLog`. A key that does not follow that rule is a
`Key`. Settings that are attrs classes themselves share the one flat name space of a file.
"""

from __future__ import annotations

import enum
import re
import types
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar, Union, get_args, get_origin, get_type_hints

import attrs

ConfigT = TypeVar("ConfigT", bound=attrs.AttrsInstance)

_UNITS = ("_bytes", "_hours", "_ms")
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_WORD = re.compile(r"\w+", re.ASCII)
#: A field's name of several words: a single word in a message may be an ordinary one.
_FIELD = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b", re.ASCII)
#: How much of a refused value is shown, as a peer may have sent it.
_SHOWN_CHARS = 200


class ConfigurationError(ValueError):
    """Properties cannot be taken; the message names their place, each key, its value, and what is wrong with it."""


@attrs.frozen
class Properties:
    """Text by key, and where it was found. `lines`: the line of each key of a file, from 1."""

    source: str
    values: Mapping[str, str]
    lines: Mapping[str, int] = attrs.field(factory=dict[str, int])

    def where(self, key: str) -> str:
        """A key's place, for messages."""
        return f"{self.source}, line {self.lines[key]}" if key in self.lines else self.source


@attrs.frozen
class Key:
    """A property that is not spelt by the rule. The field's value is the property's times `factor`."""

    name: str
    factor: int = 1


#: Keys by the path of their field, its parts joined by dots: "limits.channel_max_idle_time_ms".
Keys = Mapping[str, Key]

#: Fields whose key RocketMQ spells differently, by their name in any class.
_IRREGULAR: Keys = {
    "broker_ip1": Key("brokerIP1"),
    "broker_ip2": Key("brokerIP2"),
    "check_crc_on_recover": Key("checkCRCOnRecover"),
    "os_page_cache_busy_time_out_ms": Key("osPageCacheBusyTimeOutMills"),
    "register_broker_timeout_ms": Key("registerBrokerTimeoutMills"),
    "short_polling_time_ms": Key("shortPollingTimeMills"),
}


@attrs.frozen
class _Setting:
    """One field, at any depth."""

    path: str
    key: Key
    hint: object
    attribute: attrs.Attribute[object]


def key_of(field_name: str) -> str:
    """The property of a field that follows the rule."""
    for unit in _UNITS:
        field_name = field_name.removesuffix(unit)
    first, *words = field_name.split("_")
    return first + "".join(word.capitalize() for word in words)


def known_keys(config_type: type[attrs.AttrsInstance], keys: Keys | None = None) -> tuple[str, ...]:
    """The properties of all settings of a class, in the order of its fields."""
    return tuple(_settings(config_type, keys or {}))


def configure(base: ConfigT, properties: Properties, keys: Keys | None = None) -> ConfigT:
    """`base` with the settings that `properties` has; other keys are ignored. Raises `ConfigurationError`."""
    problems: list[str] = []
    changes: dict[str, object] = {}
    settings = _settings(type(base), keys or {})
    for name, setting in settings.items():
        text = properties.values.get(name)
        if text is None:
            continue
        try:
            value = changes[setting.path] = _parse(text, setting.hint, setting.key.factor)
            if setting.attribute.validator is not None:
                setting.attribute.validator(base, setting.attribute, value)
        except (ValueError, TypeError) as error:
            problems.append(f"{properties.where(name)}: {name}={text[:_SHOWN_CHARS]}: {_about(setting, error)}")
    if not problems:
        try:
            return _changed(base, "", changes)
        except (ValueError, TypeError) as error:  # settings that contradict each other
            message = _in_keys(str(error), settings)
            problems.append(f"{_where_told(message, properties, settings)}: {message}")
    raise ConfigurationError("; ".join(problems))


def to_properties(config: attrs.AttrsInstance, keys: Keys | None = None) -> dict[str, str]:
    """Every setting as text by key, in the order of the fields; those that are None are left out."""
    values = {}
    for name, setting in _settings(type(config), keys or {}).items():
        value: object = config
        for part in setting.path.split("."):
            value = getattr(value, part, None)
        if value is not None:
            values[name] = _text(value, setting.key.factor)
    return values


def unknown_keys(properties: Properties, known: Collection[str]) -> list[str]:
    """Each key that is not among `known`, with its place."""
    return [f"{properties.where(key)}: {key}" for key in properties.values if key not in known]


def _about(setting: _Setting, error: Exception) -> str:
    """What is wrong with a key's value, without the field's name, as the key is named already."""
    field, message = setting.attribute.name, str(error)
    return re.sub(f"^'{field}' must", "it must", message.removeprefix(f"{field}: "))


def _in_keys(message: str, settings: Mapping[str, _Setting]) -> str:
    """A message about fields, with their keys instead: the author of a file knows only these."""
    keys: dict[str, set[str]] = {}
    for name, setting in settings.items():
        keys.setdefault(setting.attribute.name, set()).add(name)

    def key(found: re.Match[str]) -> str:
        names = keys.get(found[0], {found[0]})
        return found[0] if len(names) > 1 else min(names)

    return _FIELD.sub(key, message)


def _where_told(message: str, properties: Properties, settings: Mapping[str, _Setting]) -> str:
    """The places of the keys that a message names, as far as they are in the properties; at least where those are."""
    words = {*_WORD.findall(message)} & settings.keys()
    lines = sorted(line for key, line in properties.lines.items() if key in words)
    named = "" if not lines else f", line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}"
    return properties.source + named


def _settings(config_type: type[attrs.AttrsInstance], keys: Keys, prefix: str = "") -> dict[str, _Setting]:
    """By key. Raises `ValueError` when two fields have the same."""
    settings: dict[str, _Setting] = {}
    hints = get_type_hints(config_type)
    for attribute in attrs.fields(config_type):
        if not attribute.init:
            continue
        path, hint = prefix + attribute.name, hints[attribute.name]
        nested = _nested(hint)
        if nested is not None:
            found = _settings(nested, keys, f"{path}.")
        else:
            key = keys.get(path) or _IRREGULAR.get(attribute.name) or Key(key_of(attribute.name))
            found = {key.name: _Setting(path, key, hint, attribute)}
        if both := settings.keys() & found.keys():
            raise ValueError(f"{config_type.__name__}: two fields have the key {min(both)}")
        settings.update(found)
    return settings


def _nested(hint: object) -> type[attrs.AttrsInstance] | None:
    """The settings that a field holds, or may hold."""
    for part in get_args(hint) or (hint,):
        if isinstance(part, type) and attrs.has(part):
            return part
    return None


def _changed(config: ConfigT, prefix: str, changes: Mapping[str, object]) -> ConfigT:
    """`config` with the fields below `prefix` that `changes` has, by path."""
    new: dict[str, object] = {}
    hints = get_type_hints(type(config))
    for attribute in attrs.fields(type(config)):
        path = prefix + attribute.name
        if path in changes:
            new[attribute.name] = changes[path]
        elif any(other.startswith(f"{path}.") for other in changes):
            nested = getattr(config, attribute.name)
            if nested is None:
                kind = _nested(hints[attribute.name])
                assert kind is not None, path
                nested = kind()
            new[attribute.name] = _changed(nested, f"{path}.", changes)
    evolve: Callable[..., ConfigT] = attrs.evolve
    return evolve(config, **new)


def _parse(text: str, hint: object, factor: int) -> object:
    if get_origin(hint) in {Union, types.UnionType}:
        (hint,) = (part for part in get_args(hint) if part is not types.NoneType)
        if not text.strip():
            return None
    if get_origin(hint) is tuple:
        return tuple(part.strip() for part in text.split(";") if part.strip())
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        if text.strip() not in hint.__members__:
            raise ValueError(f"it is one of {', '.join(hint.__members__)}")
        return hint[text.strip()]
    if not isinstance(hint, type) or hint not in _PARSERS:
        raise TypeError(f"no property stands for a {hint}")
    value = _PARSERS[hint](text)
    return value * factor if isinstance(value, int) and factor != 1 else value


def _parse_bool(text: str) -> bool:
    truth = {"true": True, "false": False}.get(text.strip().lower())
    if truth is None:
        raise ValueError("it is true or false")
    return truth


def _parse_int(text: str) -> int:
    if _INTEGER.fullmatch(text.strip()) is None:
        raise ValueError("it is an integer")
    return int(text)


_PARSERS: Mapping[type, Callable[[str], object]] = {bool: _parse_bool, int: _parse_int, str: str}


def _text(value: object, factor: int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, tuple):
        return ";".join(str(part) for part in value)
    return str(value // factor if isinstance(value, int) else value)
