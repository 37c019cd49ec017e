"""What a scenario of one's own must be: validators of its fields. They raise TypeError and ValueError naming the field.

`SimCluster` has some of them, too.

A name becomes the name of files, texts become lines of reports, and each run makes an operator and invariants of its
own: what cannot be one of these is refused where the scenario is written, not in the middle of a campaign.
"""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import attrs

from rmq_actors.settings.field_types import shown
from rmq_actors.testing.invariants.invariant import Invariant, Limit
from rmq_actors.testing.mistakes import MISTAKES, what
from rmq_actors.testing.observation import ALL_OBSERVABLE
from rmq_actors.testing.operators import Operator
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.path_names import why_no_path_name


class BadScenario(ValueError):
    """A scenario that cannot be run; the message names it, and says why."""


def check_name(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """It becomes the name of files: letters, digits and a few signs."""
    if why := why_no_path_name(value):
        raise ValueError(f"{_of(instance, attribute)}: {why}")


def check_line(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """It is printed: text on one line."""
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError(f"{_of(instance, attribute)} must be text on one line, not {shown(value)}")


def check_lines(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Each is printed."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) and each.isprintable() for each in value):
        raise TypeError(f"{_of(instance, attribute)} must be texts, each on one line, not {shown(value)}")


def check_observable(instance: object, attribute: attrs.Attribute[Any], value: Sequence[str]) -> None:
    """What a run may meet: names of `FaultObserver`, and those of the scenario's limits."""
    check_lines(instance, attribute, value)
    invariants: Sequence[type[Invariant[Any]]] = getattr(instance, "invariants", ())
    known = ALL_OBSERVABLE | {each.name for each in invariants if issubclass(each, Limit)}
    for name in value:
        if name not in known:
            raise ValueError(
                f"{_of(instance, attribute)}: a run cannot meet {shown(name)}; it may meet {', '.join(sorted(known))}"
            )


def check_seconds(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """So many may pass in a run."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{_of(instance, attribute)} must be a finite number of at least 0, not {shown(value)}")


def check_is(kind: type) -> Callable[[object, attrs.Attribute[Any], object], None]:
    """It is a value of this class."""

    def check(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if not isinstance(value, kind):
            raise TypeError(f"{_of(instance, attribute)} must be a {kind.__name__}, not {shown(value)}")

    return check


def check_whole_number(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """A seed, say."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{_of(instance, attribute)} must be a whole number, not {shown(value)}")


def check_function(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """It can be called."""
    if not callable(value):
        raise TypeError(f"{_of(instance, attribute)} must be a function, not {shown(value)}")


def check_operator(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """A class of operators that a run can make."""
    _check_class(_of(instance, attribute), value, Operator, "brokers", "clients")


def check_invariants(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Classes of invariants that a run can make, each with a name."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"{_of(instance, attribute)} must be classes derived from Invariant, not {shown(value)}")
    for number, each in enumerate(value):
        check_invariant(f"{_of(instance, attribute)}[{number}]", each)


def check_invariant(where: str, value: object) -> None:
    """A class of invariants that a run can make, with a name."""
    _check_class(where, value, Invariant)
    name = getattr(value, "name", None)
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ValueError(f"{where}: {_class_name(value)}.name must be text on one line, not {shown(name)}")
    _check_kinds(f"{where}: {_class_name(value)}", cast("type[Invariant[Any]]", value))


def _check_kinds(invariant: str, value: type[Invariant[Any]]) -> None:
    kinds: object = value.kinds
    if isinstance(kinds, type):
        raise TypeError(f"{invariant}.kinds must be classes of events, as in ({kinds.__name__},), not one class")
    if isinstance(kinds, str) or not isinstance(kinds, Collection):
        raise TypeError(f"{invariant}.kinds must be classes of events, not {shown(kinds)}")
    for each in kinds:
        if not isinstance(each, type) or not issubclass(each, Event) or not each.kind:
            raise TypeError(f"{invariant}.kinds must be classes of events, and {shown(each)} is not one")
    if not kinds and value.check is not Invariant.check:
        raise TypeError(f"{invariant} has a check, and no kinds: it would see no event")


def what_stays_here(scenario: object) -> str:
    """What of a scenario cannot be pickled, and where it was written; "": all can."""
    for name, value in _parts(scenario):
        try:
            pickle.dumps(value)
        except MISTAKES as error:
            return f"Scenario.{name} is {_whereabouts(value)}" if callable(value) else f"Scenario.{name}: {what(error)}"
    return ""


def _parts(scenario: object) -> Iterator[tuple[str, object]]:
    for name, value in attrs.asdict(cast("attrs.AttrsInstance", scenario), recurse=False).items():
        if name == "invariants":
            yield from ((f"invariants[{number}]", each) for number, each in enumerate(value))
        else:
            yield name, value


def _whereabouts(value: object) -> str:
    """The name of a function or class, and its file and line where Python knows them."""
    try:
        place = f" ({Path(inspect.getsourcefile(value) or '').name}, line {inspect.getsourcelines(value)[1]})"  # type: ignore[arg-type]
    except (OSError, TypeError):
        place = ""
    return f"{_class_name(value)}{place}"


def _check_class(where: str, value: object, base: type, *given: str) -> None:
    if not isinstance(value, type):
        is_made = isinstance(value, base)
        told = f"a {_class_name(type(value))}: give the class, each run makes its own" if is_made else shown(value)
        raise TypeError(f"{where} must be a class derived from {base.__name__}, not {told}")
    if not issubclass(value, base):
        raise TypeError(f"{where} must be a class derived from {base.__name__}, not {_class_name(value)}")
    try:
        inspect.signature(value).bind(*given)
    except TypeError as error:
        makes = " and ".join(given) or "no arguments"
        raise TypeError(f"{where}: {_class_name(value)}: {error}; each run makes one with {makes}") from None


def _class_name(value: object) -> str:
    return f"{getattr(value, '__module__', '?')}.{getattr(value, '__qualname__', '?')}"


def _of(instance: object, attribute: attrs.Attribute[Any]) -> str:
    return f"{type(instance).__name__}.{attribute.alias}"
