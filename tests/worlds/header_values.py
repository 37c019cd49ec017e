"""Every header class, and values of each, to write and read."""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import Any

import msgspec
from hypothesis import strategies as st

from rmq_actors.wire import headers
from rmq_actors.wire.headers import CommandHeader
from rmq_actors.wire.java_numbers import Int32, Int64

#: Whole numbers as JSON may have them: taken at no cost, though Java would refuse them.
WHOLE = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)


def all_headers() -> dict[str, type[CommandHeader]]:
    for module in pkgutil.iter_modules(headers.__path__):
        importlib.import_module(f"{headers.__name__}.{module.name}")
    return {header_type.__name__: header_type for header_type in CommandHeader.__subclasses__()}


HEADERS = all_headers()
NAMES = sorted(HEADERS)
#: RocketMQ sends its request without a header; what stands there is this project's own.
JAVA_NAMES = [name for name in NAMES if name != "UpdateBrokerConfigRequestHeader"]


def values_of(field_type: object) -> st.SearchStrategy[Any]:
    values: list[tuple[object, st.SearchStrategy[Any]]] = [
        (Int32, st.integers(-(2**31), 2**31 - 1)),
        (Int64, st.integers(-(2**63), 2**63 - 1)),
        (bool, st.booleans()),
        (str, st.text(max_size=20)),
    ]
    for kind, strategy in values:
        if field_type == kind:
            return strategy
        if field_type == kind | None:  # type: ignore[operator]
            return st.none() | strategy
    raise AssertionError(field_type)


#: What a header says of its own values.
CHECKED = {
    "commit_or_rollback": st.sampled_from([8, 12]),
    "topic_filter_type": st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
}


def header_values(name: str) -> st.SearchStrategy[CommandHeader]:
    fields = msgspec.structs.fields(HEADERS[name])
    return st.builds(HEADERS[name], **{field.name: CHECKED.get(field.name, values_of(field.type)) for field in fields})
