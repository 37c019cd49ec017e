"""Checks what callers pass by the annotations of what they call: a public function says `@checked`.

A wrong type is a `TypeError`, a value that cannot be a `ValueError`. Each names the function, the argument, what it
takes and what it was given, before anything is done. Python would find it somewhere below, or not at all.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, ParamSpec, TypeVar, cast, get_args, get_origin, get_type_hints

import attrs
import msgspec

from rmq_actors.settings.field_types import choices_of, shown, taken_as_they_are, typed_value
from rmq_actors.wire.java_numbers import INT64

P = ParamSpec("P")
R = TypeVar("R")

_AT_LEAST_0 = range(2**63)
_COUNT = range(1, 2**31)
#: By the name of an argument: the numbers that it may be, if not all of 64 bits.
_RANGES = {
    "timeout_ms": _AT_LEAST_0,
    "offset": _AT_LEAST_0,
    "max_num": _COUNT,
    "max_msg_nums": _COUNT,
    "slaves": range(1000),
    "name_server_port": range(65536),
}
#: Texts that name something: a blank one names nothing.
_NAMES = frozenset({"topic", "group", "key", "msg_id", "offset_msg_id", "cluster"})
#: What an argument takes, in words that help more than the name of its type.
_TAKES = {
    "listener": "Concurrently(async function) or Orderly(async function)",
    "selector": "a function",
    "subscriptions": 'an expression for each topic, such as {"Orders": "*"}',
}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, whose arguments are looked at before it begins."""
    known: _Arguments | None = None

    def look(args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        nonlocal known
        if known is None:
            known = _arguments_of(function)
        for value, exact in zip(args, known.positional, strict=False):
            if exact is not None and type(value) not in exact:
                known.check(args, kwargs)
                break
        else:
            if kwargs:
                known.check((), kwargs)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def called(*args: P.args, **kwargs: P.kwargs) -> Any:  # noqa: ANN401  # the coroutine gives R's result
            look(args, kwargs)
            return await function(*args, **kwargs)

        return cast("Callable[P, R]", called)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        look(args, kwargs)
        return function(*args, **kwargs)

    return call


def check_arguments(function: Callable[..., object], /, **arguments: object) -> None:
    """Look at these arguments of `function` from within it, where it is called too often for `checked`."""
    _arguments_of(function).check((), arguments)


@attrs.frozen
class _Argument:
    """One argument of a function."""

    name: str
    hint: Any
    #: Values of exactly these types need no look; None: no value does.
    exact: frozenset[type] | None
    numbers: range
    takes_numbers: bool

    @classmethod
    def of(cls, name: str, hint: Any) -> _Argument:  # noqa: ANN401  # an annotation is anything
        exact: frozenset[type] | None = None
        if hint is not object and not isinstance(hint, TypeVar):
            looked_at = {int, str} if name in _NAMES else {int}
            kinds = taken_as_they_are(hint) - looked_at
            exact = frozenset(kind for kind in kinds if not issubclass(kind, msgspec.Struct))
        return cls(name, hint, exact, _RANGES.get(name, INT64), int in choices_of(hint))

    def why_not(self, value: object) -> Exception | None:
        """Why a value cannot be given."""
        if type(value) is int and self.takes_numbers and value in self.numbers:
            return None
        takes = _TAKES.get(self.name)
        why = _why_not(self.name, value, self.hint, self.numbers)
        return why if why is None or takes is None else TypeError(f"{self.name} must be {takes}, not {shown(value)}")


@attrs.frozen
class _Arguments:
    """The arguments of a function: which may be given by position, and all of them."""

    place: str
    positional: tuple[frozenset[type] | None, ...]
    by_name: Mapping[str, _Argument]

    @classmethod
    def of(cls, function: Callable[..., object]) -> _Arguments:
        hints = get_type_hints(function, vars(sys.modules[function.__module__]))
        parameters = inspect.signature(function).parameters.values()
        found = {each.name: _Argument.of(each.name, hints.get(each.name, object)) for each in parameters}
        by_position = [each.name for each in parameters if each.kind is not inspect.Parameter.KEYWORD_ONLY]
        return cls(function.__qualname__, tuple(found[name].exact for name in by_position), found)

    def check(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Raise for the first value that cannot be. An unknown name is Python's to refuse."""
        for argument, value in zip(self.by_name.values(), args, strict=False):
            self._check(argument, value)
        for name, value in kwargs.items():
            if name in self.by_name:
                self._check(self.by_name[name], value)

    def _check(self, argument: _Argument, value: object) -> None:
        if argument.exact is not None and type(value) not in argument.exact:
            why = argument.why_not(value)
            if why is not None:
                raise type(why)(f"{self.place}: {why}")


_arguments_of = functools.cache(_Arguments.of)


def _why_not(name: str, value: object, hint: object, numbers: range = INT64) -> Exception | None:
    try:
        if typed_value(value, hint) is not value:
            return TypeError(f"{name} takes no text, and is {shown(value)}")
    except ValueError as error:
        return TypeError(f"{name} {error}")
    if isinstance(value, int) and not isinstance(value, bool) and value not in numbers:
        bound = f"at least {numbers[0]}" if value < numbers[0] else f"at most {numbers[-1]}"
        return ValueError(f"{name} must be {bound}, not {shown(value)}")
    if name in _NAMES and isinstance(value, str) and not value.strip():
        return ValueError(f"{name} must be a name, not {shown(value)}")
    if isinstance(value, msgspec.Struct):
        fields = _fields(value)
        return _first(_why_not(f"{name}.{field}", each, kind, fits) for field, each, kind, fits in fields)
    elements = itertools.chain.from_iterable(_elements(value, choice) for choice in choices_of(hint))
    return _first(_why_not(f"{name}{at}", each, kind) for at, each, kind in elements)


def _first(found: Iterable[Exception | None]) -> Exception | None:
    return next((why for why in found if why is not None), None)


def _fields(value: msgspec.Struct) -> Iterator[tuple[str, object, object, range]]:
    """Each field of a body that callers write, such as a queue, with its annotation and the numbers that it takes."""
    for name, hint in get_type_hints(type(value), include_extras=True).items():
        numbers = INT64
        if get_origin(hint) is Annotated:
            hint, *metas = get_args(hint)  # noqa: PLW2901 - the annotation without what it is annotated with
            for meta in metas:
                if isinstance(meta, msgspec.Meta) and meta.ge is not None and meta.le is not None:
                    numbers = range(int(meta.ge), int(meta.le) + 1)
        yield name, getattr(value, name), hint, numbers


def _elements(value: object, hint: object) -> Iterator[tuple[str, object, object]]:
    """What a collection holds: where, and with its annotation. Of what can be gone through once alone, nothing."""
    kinds = get_args(hint)
    if isinstance(value, Mapping) and len(kinds) == len(("key", "value")):
        for key, element in value.items():
            yield f"'s key {shown(key)}", key, kinds[0]
            yield f"[{shown(key)}]", element, kinds[1]
    elif isinstance(value, Collection) and len(kinds) == 1:
        for number, element in enumerate(value):
            yield f"[{number}]", element, kinds[0]
