"""What an operator does, as faults are: a value with a time, or an event that it waits for, in a run's schedule."""

from __future__ import annotations

import math
import random
import weakref
from collections.abc import Sequence
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

import attrs

from sim_net import Fault, On, World, register_fault
from sim_net.faults.fault import Undo, nothing

#: What there is to do; see `DrawnOperator` for how. Each is a command, or a procedure of docs/operating.md.
OPERATIONS: Final = (
    "exchange",
    "exchange_twice",
    "exchange_by_hand",
    "fail_over",
    "stop_and_fail_over",
    "restart",
    "set_up_again",
    "truncate",
    "follow_again",
    "truncate_on_divergence",
    "reopen",
)
#: Commands that meet each other, in the scenario `races` alone.
RACES: Final = ("exchange_and_set_role", "set_role_again", "come_back_by_file", "restart_and_set")
#: What clients may do with a broker is set, in the scenario `routes` alone.
PERMISSIONS: Final = ("set_permission", "set_permission_and_reopen", "exchange_and_set_permission")
#: What is done to files of brokers that are down, in the scenario `lost-files` alone.
FILES: Final = (
    "lose_queue_files",
    "lose_index_files",
    "lose_log_file",
    "spoil_record",
    "spoil_term",
    "part_of_a_record",
    "record_of_long_topic",
    "record_of_rocketmq_5",
    "records_of_rocketmq",
    "tables_to_backups",
    "directory_in_the_way",
)
#: Commands that are mistaken, or come at a bad time, in the scenario `exchanges` alone.
MISTAKES: Final = ("set_role_wrongly", "set_role_and_exchange")
#: What operators do with settings and with brokers of other names, in the scenario `settings` alone.
SETTINGS: Final = ("exchange_and_stop", "restart_while_read", "follow_another_name", "set_auto_create")
#: All of them.
KNOWN_OPERATIONS: Final = (*OPERATIONS, *RACES, *PERMISSIONS, *FILES, *MISTAKES, *SETTINGS)
#: How long the operator waits for what should be so first: not at all, or as a hasty or a patient person does.
_PATIENCE_S: Final = (0.0, 0.0, 0.3, 2.0, 30.0)
_AT_S: Final = (0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0)
_LATER_S: Final = (0.0, 0.0003, 0.003, 0.1, 0.7)
#: At what events an operation begins: when a store has opened, a put waits, a slave halts, an exchange or role changes.
_EVENTS: Final = (
    "log.append",
    "put.begin",
    "store.open",
    "ha.client.connect",
    "ha.client.halt",
    "ha.client.report",
    "broker.role",
    "broker.exchange",
    "broker.exchange_partner",
    "node.kill",
)
_TIMED_BY_EVENTS: Final = 0.3
#: The same where a scenario says which events.
_TIMED_BY_ITS_EVENTS: Final = 0.7
_TWICE: Final = 0.1


def _check_what(_: object, __: attrs.Attribute[Any], value: object) -> None:
    if value not in KNOWN_OPERATIONS:
        raise ValueError(f"Operation.what must be one of {', '.join(KNOWN_OPERATIONS)}, not {value!r}")


def _check_patience(_: object, __: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"Operation.patience_s must be a finite number of at least 0, not {value!r}")


@register_fault
@attrs.frozen
class Operation(Fault):
    """An operator begins to do `what` about the broker of `node`; it waits up to `patience_s` for what should be so."""

    node: str
    what: str = attrs.field(validator=_check_what)
    patience_s: float = attrs.field(default=0.0, validator=_check_patience)

    def begin(self, world: World) -> Undo:
        """Tell the world's operator. Raises ValueError if it has none."""
        operator = _OPERATORS.get(world, lambda: None)()
        if operator is None:
            raise ValueError(f"{self}: this world has no operator who takes orders")
        operator.order(self)
        return nothing


class TakesOrders(Protocol):
    """An operator who does what is drawn."""

    def order(self, operation: Operation) -> object:
        """Begin to do it."""
        ...


#: The operator of each world. It is not kept alive: it knows its world, and would keep that and all of its run.
_OPERATORS: Final[WeakKeyDictionary[World, weakref.ref[TakesOrders]]] = WeakKeyDictionary()


def take_orders(world: World, operator: TakesOrders) -> None:
    """From now on give each `Operation` of the world's schedule to `operator`. The caller must keep it alive."""
    _OPERATORS[world] = weakref.ref(operator)


def draw_operations(
    rng: random.Random,
    names: Sequence[str],
    count: int,
    operations: Sequence[str] = OPERATIONS,
    events: Sequence[str] = (),
) -> list[Fault]:
    """So many of these operations; some are given twice, the second time a moment later.

    With `events` most of them wait for one of these, else some for one of the usual ones.
    """
    drawn: list[Fault] = []
    for _ in range(count):
        on = None
        if rng.random() < (_TIMED_BY_ITS_EVENTS if events else _TIMED_BY_EVENTS):
            on = On(rng.choice(events or _EVENTS), rng.choice(("", *names)), rng.choice((1, 2, 3, 5, 13)))
        at_s = 0.0 if on is not None else rng.choice(_AT_S)
        operation = Operation(
            round(at_s + rng.choice(_LATER_S), 4),
            rng.choice(names),
            rng.choice(operations),
            rng.choice(_PATIENCE_S),
            on=on,
        )
        drawn.append(operation)
        if rng.random() < _TWICE:
            drawn.append(attrs.evolve(operation, at_s=round(operation.at_s + rng.choice((0.0, 0.01, 0.5)), 4)))
    return drawn
