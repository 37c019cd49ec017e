"""Whoever writes settings in Python may write text or a bool where a number or an enum belongs: no class takes it."""

from __future__ import annotations

import enum
import importlib
import pkgutil
import sys
import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs
import pytest

import rmq_actors
import sim_net
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.remoting.tls import TlsConfig, TlsMode
from rmq_actors.settings.field_types import taken_as_they_are, typed_value
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig


def _attrs_classes() -> Iterator[type[Any]]:
    for package in (rmq_actors, sim_net):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and attrs.has(value) and value.__module__ == module.name:
                    yield value


def _is_settings(candidate: type[Any]) -> bool:
    """Whether a person gives it, field by field: everything has a default, and something has bounds.

    A class with state, such as `SimCluster`, is not a value, and has no `__eq__` of its own.
    """
    if not any("__eq__" in vars(each) for each in candidate.__mro__[:-1]):
        return False
    fields = [field for field in attrs.fields(candidate) if field.init]
    if not fields or any(field.default is attrs.NOTHING for field in fields):
        return False
    return candidate.__name__.endswith(("Config", "Limits")) or any(field.validator for field in fields)


SETTINGS = sorted({each for each in _attrs_classes() if _is_settings(each)}, key=lambda each: each.__qualname__)


def _choices(hint: object) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in {Union, types.UnionType} else (hint,)


def _wrong(hint: object) -> list[object]:
    """Values that somebody may write, and that a field with this annotation does not take."""
    wrong: list[object] = ["1M", "", True, "false", 1, 1.5, b"x", None, object()]
    for choice in _choices(hint):
        kind = get_origin(choice) or choice
        takes: tuple[type[Any], ...] = (int, float) if kind is float else (kind,) if isinstance(kind, type) else ()
        if kind is Literal:
            takes = ()
        wrong = [
            value for value in wrong if not isinstance(value, takes) or (isinstance(value, bool) and kind is not bool)
        ]
    return wrong


def _fields(config_type: type[Any]) -> Iterator[tuple[str, object]]:
    # Names are the module's: a class may have a field called `type`.
    hints = get_type_hints(config_type, vars(sys.modules[config_type.__module__]), {})
    return ((field.name, hints[field.name]) for field in attrs.fields(config_type) if field.init)


def test_the_classes_of_settings_are_found() -> None:
    assert {MessageStoreConfig, BrokerConfig, TlsConfig} <= set(SETTINGS)
    assert {"HaConfig", "NamesrvConfig", "RouteTableLimits", "ConnectionLimits", "RemotingServerConfig"} <= {
        each.__name__ for each in SETTINGS
    }
    assert {"WorldConfig", "LinkConfig", "DiskConfig", "MailboxLimits", "Restart"} <= {
        each.__name__ for each in SETTINGS
    }


@pytest.mark.parametrize("config_type", SETTINGS)
def test_a_value_of_another_type_is_refused_by_the_name_of_its_field(config_type: type[Any]) -> None:
    for field, hint in _fields(config_type):
        for value in _wrong(hint):
            with pytest.raises((ValueError, TypeError)) as caught:
                config_type(**{field: value})
            assert field in str(caught.value), value
            assert "not supported between" not in str(caught.value), value


ENUMS = [
    (config_type, field, choice)
    for config_type in SETTINGS
    for field, hint in _fields(config_type)
    for choice in _choices(hint)
    if isinstance(choice, type) and issubclass(choice, enum.Enum)
]


@pytest.mark.parametrize(("config_type", "field", "kind"), ENUMS)
def test_text_for_an_enum_becomes_the_member(config_type: type[Any], field: str, kind: type[enum.Enum]) -> None:
    for member in kind:
        for text in (member.name, member.value):
            assert getattr(config_type(**{field: text}), field) is member
    with pytest.raises(ValueError, match=f"{config_type.__name__}.{field} must be one of .*, not 'nothing'"):
        config_type(**{field: "nothing"})


def test_what_is_promised_is_kept_where_text_was_given() -> None:
    given: Any = {"broker_role": "SYNC_MASTER", "flush_disk_type": "SYNC_FLUSH"}
    config = MessageStoreConfig(**given)
    assert config == MessageStoreConfig(BrokerRole.SYNC_MASTER, FlushDiskType.SYNC_FLUSH)
    tls: Any = {"server_mode": "permissive"}
    assert TlsConfig(**tls).server_mode is TlsMode.PERMISSIVE


def test_a_size_in_words_is_named() -> None:
    given: Any = {"mapped_file_size_commit_log_bytes": "1M"}
    with pytest.raises(
        ValueError, match=r"MessageStoreConfig.mapped_file_size_commit_log_bytes must be a whole number, not '1M'"
    ):
        MessageStoreConfig(**given)


HINTS = [
    *(hint for each in SETTINGS for hint in get_type_hints(each, vars(sys.modules[each.__module__]), {}).values()),
    *(str | BrokerRole, int | None, float, object, Any, tuple[int, ...] | None, Literal["a", 1], TlsMode | int),
]


def test_the_short_way_takes_only_what_the_long_way_hands_back() -> None:
    values = ["a", "SYNC_MASTER", 1, True, 1.5, None, b"x", (), ("a",), BrokerRole.SLAVE, TlsMode.DISABLED, object()]
    taken = 0
    for hint in HINTS:
        for value in values:
            if type(value) in taken_as_they_are(hint):
                taken += 1
                assert typed_value(value, hint) is value, (value, hint)
    assert taken > len(HINTS)
