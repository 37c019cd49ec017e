"""What a fault is: a frozen value that says when it begins, whom it is about, and how to do and undo it in a world.

The kinds are in `network_faults`, `node_faults` and `disk_faults`; `faults` lists them all. A kind is an attrs class
whose fields follow three rules, which give the rest for free: `node`, `a` and `b` name nodes; `duration_s` or `down_s`
is how long it lasts (without one, it ends at once); every other field is a number, a string or a flag.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import attrs

from sim_net.field_checks import check_count, check_not_negative, check_text, field_name

if TYPE_CHECKING:
    from sim_net.world import World

#: Takes back what a fault has done. It must not mind what other faults have begun or ended meanwhile.
Undo = Callable[[], object]

_NODE_FIELDS: Final = ("node", "a", "b")
_LENGTH_FIELDS: Final = ("duration_s", "down_s")


def _check_kind(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, str) or not value.rstrip("*"):
        raise ValueError(f"{field_name(instance, attribute)} must be a kind of event, not {value!r}")


def _check_on(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not isinstance(value, On):
        raise ValueError(f"{field_name(instance, attribute)} must be an On, not {value!r}")


@attrs.frozen
class On:
    """The `nth` event of a kind since the fault was applied, of one node, or of any if `node` is empty.

    Kinds are those of the journal, those of the program's own trace (`World.trace_source`), and `disk.` with the name
    of an operation. A kind that ends in `*` stands for all that begin so: `disk.*` is any operation of a disk.
    """

    kind: str = attrs.field(validator=_check_kind)
    node: str = attrs.field(default="", validator=check_text)
    nth: int = attrs.field(default=1, validator=check_count)

    def matches(self, node: str, kind: str) -> bool:
        """Whether an event of this kind and node counts."""
        if self.node and self.node != node:
            return False
        return kind == self.kind or (self.kind[-1] == "*" and kind.startswith(self.kind[:-1]))


@attrs.frozen
class Fault(ABC):
    """The base of all kinds. `at_s` counts in virtual seconds from the start of the run; or from the event `on`."""

    at_s: float = attrs.field(validator=check_not_negative)
    on: On | None = attrs.field(default=None, kw_only=True, validator=_check_on)

    def __str__(self) -> str:
        """As it is written in a program; without a trigger nothing is said of one."""
        fields = ((field.name, getattr(self, field.name)) for field in attrs.fields(type(self)))
        given = ", ".join(f"{name}={value!r}" for name, value in fields if name != "on" or value is not None)
        return f"{type(self).__name__}({given})"

    @abstractmethod
    def begin(self, world: World) -> Undo:
        """Do it; what is returned undoes it."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes that the fault is about."""
        return tuple(getattr(self, name) for name in _NODE_FIELDS if hasattr(self, name))

    @property
    def lasts_s(self) -> float:
        """How long it lasts, in seconds; 0 if it ends as it begins."""
        for name in _LENGTH_FIELDS:
            if hasattr(self, name):
                return float(getattr(self, name))
        return 0.0


def nothing() -> None:
    """Undo what leaves no state behind."""
