"""A schedule: the faults of one run, in a fixed order, as a value and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable

import attrs

from sim_net.faults.fault import Fault
from sim_net.faults.faults import Json, fault_from_dict, fault_to_dict


def _faults(value: Iterable[Fault]) -> tuple[Fault, ...]:
    faults = tuple(value)
    for index, each in enumerate(faults):
        if not isinstance(each, Fault):
            raise TypeError(f"faults[{index}] must be a Fault, not {each!r}")
    return faults


@attrs.frozen
class Schedule:
    """Faults. Their order settles who goes first at one instant, and gives each its `fault_id`."""

    faults: tuple[Fault, ...] = attrs.field(default=(), converter=_faults)

    def __len__(self) -> int:
        """How many faults there are."""
        return len(self.faults)

    @property
    def ends_s(self) -> float:
        """When the last fault is over, in virtual seconds; 0.0 without any. One that waits for an event does not count.

        When those are over is known in a run alone: `World.faults_end_s`.
        """
        return max((fault.at_s + fault.lasts_s for fault in self.faults if fault.on is None), default=0.0)

    def to_list(self) -> list[Json]:
        """The faults as JSON values."""
        return [fault_to_dict(fault) for fault in self.faults]

    def to_json(self) -> str:
        """One JSON object: `{"faults": [...]}`."""
        return json.dumps({"faults": self.to_list()}, indent=1)

    @classmethod
    def from_list(cls, data: object, where: str = "faults") -> Schedule:
        """Undo `to_list`. ValueError naming the fault and the field that are wrong."""
        if not isinstance(data, list):
            raise ValueError(f"{where} must be a list, not {type(data).__name__}")  # noqa: TRY004 - bad input, not a bad call
        faults = []
        for index, each in enumerate(data):
            try:
                faults.append(fault_from_dict(each))
            except ValueError as error:
                raise ValueError(f"{where}[{index}]: {error}") from error
        return cls(tuple(faults))

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Undo `to_json`. ValueError saying what is wrong, and where."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"a schedule must be JSON: {error}") from error
        if not isinstance(data, dict) or set(data) != {"faults"}:
            raise ValueError('a schedule must be an object with the one key "faults"')
        return cls.from_list(data["faults"])
