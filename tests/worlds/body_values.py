"""Values of any type of body, for Hypothesis: built from the declarations of the types."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from types import ModuleType
from typing import cast

import hypothesis.strategies as st
from msgspec.inspect import (
    BoolType,
    DictType,
    EnumType,
    FloatType,
    IntType,
    ListType,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    type_info,
)

import rmq_actors.wire.bodies as package
from rmq_actors.wire.bodies.register_broker import RegisterBrokerBody
from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.bodies.topic_configs import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
)
from rmq_actors.wire.remoting_command import LanguageCode


def _modules() -> list[ModuleType]:
    return [
        importlib.import_module(f"{package.__name__}.{module.name}")
        for module in pkgutil.iter_modules(package.__path__)
    ]


#: Every body and every part of one, by its name.
BODY_TYPES: dict[str, type[RemotingSerializable]] = {
    value.__name__: value
    for module in _modules()
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, RemotingSerializable) and value is not RemotingSerializable
}

#: Modules whose bodies are this project's own: RocketMQ has no such classes.
_OWN = ("broker_census", "deleted_topics", "replication_state", "role_exchange")
JAVA_BODY_TYPES = {name: value for name, value in BODY_TYPES.items() if value.__module__.rpartition(".")[2] not in _OWN}

#: Text that looks like JSON, or that is written in its own way.
TEXT = st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from(
    [",1:", "{1:", '",1:2,"', "\\", "\\u001f", "\\\x1f", "/", "\x7f\x85\u2028", "\U0001f600", "null", "0"]
)


_INT32 = st.integers(-(2**31), 2**31 - 1)
_NAMES = st.text(st.characters(codec="utf-8", exclude_characters=" "), min_size=1, max_size=8)
#: What the compressed form can carry: topics under their own names, without blanks, `order` and `topicSysFlag`.
_TOPICS = st.builds(
    TopicConfig,
    topic_name=_NAMES,
    read_queue_nums=_INT32,
    write_queue_nums=_INT32,
    perm=_INT32,
    topic_filter_type=st.sampled_from(TopicFilterType),
)
REGISTRATIONS = st.builds(
    RegisterBrokerBody,
    filter_server_list=st.lists(_NAMES, max_size=3),
    topic_config_serialize_wrapper=st.builds(
        TopicConfigSerializeWrapper,
        data_version=st.builds(DataVersion, counter=_INT32, timestamp=_INT32, state_version=st.none() | _INT32),
        topic_config_table=st.lists(_TOPICS, max_size=4).map(
            lambda topics: {topic.topic_name: topic for topic in topics}
        ),
    ),
)


def fields_of(kind: type[RemotingSerializable]) -> StructType:
    """What a type declares."""
    info = type_info(kind)
    assert isinstance(info, StructType)
    return info


def has_objects_as_keys(kind: type[RemotingSerializable]) -> bool:
    """Whether JSON of it is never strict."""
    return "key_type=StructType" in repr(fields_of(kind))


@functools.cache
def bodies(kind: type[RemotingSerializable], max_items: int = 3) -> st.SearchStrategy[RemotingSerializable]:
    """Values of one type; lists and maps have at most `max_items`."""
    return cast("st.SearchStrategy[RemotingSerializable]", _values(type_info(kind), max_items))


def _values(kind: Type, max_items: int) -> st.SearchStrategy[object]:
    match kind:
        case StructType():
            fields = {field.name: _values(field.type, max_items) for field in kind.fields}
            if "language" in fields:
                fields["language"] = st.none() | st.sampled_from([language.name for language in LanguageCode])
            return st.builds(kind.cls, **fields)
        case DictType():
            keys, items = _values(kind.key_type, max_items), _values(kind.value_type, max_items)
            return st.dictionaries(keys, items, max_size=max_items)
        case ListType():
            return st.lists(_values(kind.item_type, max_items), max_size=max_items)
        case UnionType():
            return st.one_of(*[_values(one, max_items) for one in kind.types])
        case EnumType():
            return st.sampled_from(list(kind.cls))
        case IntType():
            return st.integers(kind.ge, kind.le)
        case FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case StrType():
            return TEXT
        case BoolType():
            return st.booleans()
        case NoneType():
            return st.none()
        case _:
            raise AssertionError(f"no values of {kind}")
