"""What the clients of the replication scenario do, and how its brokers flush: the parameters of a case, checked."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

import attrs

from rmq_actors.store.config import FlushDiskType
from rmq_actors.testing.planted_bugs import PLANTED_BUGS
from sim_net.search import Parameter

_FLUSH_TYPES = tuple(flush_type.value for flush_type in FlushDiskType)
_IN_FLIGHT_MAX = 100
_BODY_BYTES_MAX = 2000
#: With its header it must fit a slave's read buffer.
_BATCH_BYTES_MAX = 4000


def _whole_number(minimum: int, maximum: int | None = None) -> Callable[[object, attrs.Attribute[int], int], None]:
    limits = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"

    def check(_: object, attribute: attrs.Attribute[int], value: int) -> None:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or not minimum <= value <= (value if maximum is None else maximum):
            raise ValueError(f"parameters[{attribute.name!r}] must be a whole number {limits}, not {value!r}")

    return check


def _pause(_: object, attribute: attrs.Attribute[float], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"parameters[{attribute.name!r}] must be a finite number of at least 0, not {value!r}")


def _flush_type(_: object, attribute: attrs.Attribute[str], value: object) -> None:
    if value not in _FLUSH_TYPES:
        raise ValueError(f"parameters[{attribute.name!r}] must be one of {', '.join(_FLUSH_TYPES)}, not {value!r}")


def _known_bug(_: object, __: attrs.Attribute[str | None], value: object) -> None:
    if value is not None and value not in PLANTED_BUGS:
        raise ValueError(f"no planted bug is called {value!r}; there are {', '.join(PLANTED_BUGS)}")


@attrs.frozen
class Workload:
    """Two writers put `puts` messages in all, `in_flight` each at a time, and rest for up to `pause_s` seconds between.

    Bodies have 1 to `body_bytes_max` bytes, short ones more often; the master sends frames of up to
    `transfer_batch_bytes` of the log (haTransferBatchSize). Raises ValueError naming what is wrong.
    """

    puts: int = attrs.field(validator=_whole_number(0))
    pause_s: float = attrs.field(validator=_pause)
    in_flight: int = attrs.field(default=1, validator=_whole_number(1, _IN_FLIGHT_MAX))
    body_bytes_max: int = attrs.field(default=900, validator=_whole_number(1, _BODY_BYTES_MAX))
    transfer_batch_bytes: int = attrs.field(default=512, validator=_whole_number(1, _BATCH_BYTES_MAX))
    master_flush: str = attrs.field(default=FlushDiskType.ASYNC_FLUSH.value, validator=_flush_type)
    slave_flush: str = attrs.field(default=FlushDiskType.ASYNC_FLUSH.value, validator=_flush_type)
    planted_bug: str | None = attrs.field(default=None, validator=_known_bug)

    @classmethod
    def of(cls, parameters: Mapping[str, Parameter]) -> Workload:
        """The workload of a case's parameters. Raises ValueError for one that is unknown, missing or wrong."""
        known = attrs.fields_dict(cls)
        unknown = [name for name in parameters if name not in known]
        if unknown:
            raise ValueError(f"no parameter is called {', '.join(map(repr, sorted(unknown)))}")
        # A missing one without a default is reported by its validator.
        given = {name: parameters.get(name) for name in ("puts", "pause_s")} | dict(parameters)
        return cls(**given)  # type: ignore[arg-type]  # the validators look at the types

    @classmethod
    def draw(cls, rng: random.Random, planted_bug: str | None = None) -> Workload:
        """A random one, small enough for a run of a fraction of a second."""
        return cls(
            puts=rng.choice((20, 40, 60)),
            pause_s=rng.choice((0.1, 0.3, 0.6)),
            in_flight=rng.choice((1, 1, 2, 5)),
            body_bytes_max=rng.choice((100, 900, 900)),
            transfer_batch_bytes=rng.choice((100, 512, 512, 4000)),
            master_flush=rng.choice(_FLUSH_TYPES),
            slave_flush=rng.choice(_FLUSH_TYPES),
            planted_bug=planted_bug,
        )

    def to_parameters(self) -> dict[str, Parameter]:
        """The parameters of a case: those that differ from their defaults, and those that have none."""
        return {
            field.name: value
            for field in attrs.fields(type(self))
            if (value := getattr(self, field.name)) != field.default or field.default is attrs.NOTHING
        }
