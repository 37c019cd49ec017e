"""Finding a failing run, and making it smaller. What a run is, and what failing means, are the caller's functions.

Bulk search is plain: one seeded schedule a run. Shrinking is greedy: drop faults, in chunks, then singly; then move
numbers to small round ones; keep whatever still fails. A seed stands for one version of the code only, so a case
carries its schedule and parameters too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from sim_net.faults.fault import Fault, On
from sim_net.faults.schedule import Schedule

Parameter = None | bool | int | float | str


def _parameters(value: Mapping[str, Parameter]) -> Mapping[str, Parameter]:
    return dict(value)


@attrs.frozen
class Case:
    """One run, whole: the world's seed, the faults, and what else the caller's runs depend on."""

    seed: int
    schedule: Schedule = attrs.field(factory=Schedule)
    parameters: Mapping[str, Parameter] = attrs.field(factory=dict, converter=_parameters)

    def to_json(self) -> str:
        """One JSON object: `seed`, `parameters`, `faults`."""
        data = {"seed": self.seed, "parameters": dict(self.parameters), "faults": self.schedule.to_list()}
        return json.dumps(data, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Case:
        """Undo `to_json`. ValueError saying what is wrong, and where."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"a case must be JSON: {error}") from error
        if not isinstance(data, dict):
            raise ValueError(f"a case must be an object, not {type(data).__name__}")  # noqa: TRY004 - bad input, not a bad call
        keys = {"seed", "parameters", "faults"}
        problems = [f"unknown key {key!r}" for key in data if key not in keys]
        problems += [f"missing key {key!r}" for key in sorted(keys) if key not in data]
        if problems:
            raise ValueError(f"a case: {', '.join(problems)}")
        seed, parameters = data["seed"], data["parameters"]
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise ValueError(f"seed must be a whole number, not {seed!r}")  # noqa: TRY004 - bad input, not a bad call
        if not isinstance(parameters, dict):
            raise ValueError(f"parameters must be an object, not {parameters!r}")  # noqa: TRY004 - bad input, not a bad call
        for name, value in parameters.items():
            if isinstance(value, list | dict):
                raise ValueError(f"parameters[{name!r}] must be a scalar, not {value!r}")  # noqa: TRY004 - bad input, not a bad call
        return cls(seed, Schedule.from_list(data["faults"]), parameters)


@attrs.frozen
class Found:
    """A failing case, what its failure said, and the number of runs that it took."""

    case: Case
    failure: str
    runs: int


def find(
    run_case: Callable[[Case], str | None],
    generate: Callable[[int], Case],
    starts: Iterable[int],
    *,
    runs_max: int,
    stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[int], object] | None = None,
) -> Found | None:
    """Run `generate(start)` for each start until one fails: `run_case` returns why, or None when all is well.

    Ends with None after `runs_max` runs, at the end of `starts`, or once `stop()` is true. `on_progress` gets the
    number of runs done.
    """
    for runs, start in enumerate(starts):
        if runs >= runs_max or stop():
            return None
        case = generate(start)
        failure = run_case(case)
        if on_progress is not None:
            on_progress(runs + 1)
        if failure is not None:
            return Found(case, failure, runs + 1)
    return None


def shrink(
    case: Case,
    failing: Callable[[Case], object],
    *,
    runs_max: int,
    stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[int, Case], object] | None = None,
) -> Case:
    """A smaller case for which `failing` is true too; `case` must be one. At most `runs_max` calls of `failing`.

    Once `stop()` is true, it is the smallest failing case so far. `on_progress` gets that after each run, too, with the
    number of runs done.
    """
    return _Shrinker(case, failing, runs_max, stop, on_progress).shrink()


class _Shrinker:
    def __init__(
        self,
        case: Case,
        failing: Callable[[Case], object],
        runs_max: int,
        stop: Callable[[], bool],
        on_progress: Callable[[int, Case], object] | None,
    ) -> None:
        self._best = case
        self._failing = failing
        self._stop = stop
        self._runs_left = runs_max
        self._runs = 0
        self._on_progress = on_progress

    def shrink(self) -> Case:
        before = None
        while before != self._best and self._may_run:
            before = self._best
            self._drop_faults()
            self._begin_earlier()
            self._simplify_faults()
            self._simplify_parameters()
        return self._best

    @property
    def _may_run(self) -> bool:
        return self._runs_left > 0 and not self._stop()

    def _accept(self, case: Case) -> bool:
        """Try `case`; keep it if it fails."""
        if not self._may_run:
            return False
        self._runs_left -= 1
        self._runs += 1
        fails = bool(self._failing(case))
        if fails:
            self._best = case
        if self._on_progress is not None:
            self._on_progress(self._runs, self._best)
        return fails

    def _with_faults(self, faults: tuple[Fault, ...]) -> Case:
        return attrs.evolve(self._best, schedule=Schedule(faults))

    def _drop_faults(self) -> None:
        size = len(self._best.schedule)
        while size:
            # From the end: late faults matter least, and what stays keeps its place.
            end = len(self._best.schedule)
            while end > 0:
                faults = self._best.schedule.faults
                start = max(0, end - size)
                self._accept(self._with_faults(faults[:start] + faults[end:]))
                end = start
            size //= 2

    def _begin_earlier(self) -> None:
        """Move all faults by the same time: what matters is often only how far they are apart."""
        first_s = min((fault.at_s for fault in self._best.schedule.faults if fault.on is None), default=0.0)
        for earlier_s in (first_s, first_s - 1.0, float(int(first_s))):
            if earlier_s > 0:
                faults = [
                    attrs.evolve(fault, at_s=fault.at_s - earlier_s) if fault.on is None else fault
                    for fault in self._best.schedule.faults
                ]
                if self._accept(self._with_faults(tuple(faults))):
                    return

    def _simplify_faults(self) -> None:
        for index in range(len(self._best.schedule)):
            for field in attrs.fields(type(self._best.schedule.faults[index])):
                value = getattr(self._best.schedule.faults[index], field.name)
                for simpler in _simpler(value):
                    faults = list(self._best.schedule.faults)
                    try:
                        faults[index] = _with_field(faults[index], field.name, simpler)
                    except ValueError:
                        continue  # not every field may be 0
                    if self._accept(self._with_faults(tuple(faults))):
                        break

    def _simplify_parameters(self) -> None:
        for name, value in self._best.parameters.items():
            for simpler in (
                () if isinstance(value, bool) or not isinstance(value, int | float) else _simpler_numbers(value)
            ):
                if self._accept(attrs.evolve(self._best, parameters={**self._best.parameters, name: simpler})):
                    break


def _with_field(fault: Fault, name: str, value: object) -> Fault:
    """The fault with another value in one field. ValueError if it may not be that."""
    changes: dict[str, Any] = {name: value}
    return attrs.evolve(fault, **changes)


def _simpler(value: object) -> Iterator[int | float | On | None]:
    """Smaller or rounder numbers than `value`, the simplest first; no event, or an earlier one; else nothing."""
    if isinstance(value, On):
        yield None
        for nth in _simpler_numbers(value.nth):
            if nth:
                yield attrs.evolve(value, nth=int(nth))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _simpler_numbers(value)


def _simpler_numbers(value: float) -> Iterator[int | float]:
    if isinstance(value, int):
        towards_0 = 1 if value < 0 else -1
        # A step of two as well: every second operation may be the one that matters.
        candidates: list[int | float] = [0, 1, int(value / 2), value + 2 * towards_0, value + towards_0]
    else:
        candidates = [0.0, 1.0, round(value / 2), round(value), round(value, 1), round(value, 3)]
        candidates = [float(each) for each in candidates]
    tried = []
    for each in candidates:
        if each not in tried and _cost(each) < _cost(value):
            tried.append(each)
            yield each


def _cost(value: float) -> tuple[int, float]:
    """What "simpler" means: fewer digits, then smaller. Each step of a shrink lowers it, so shrinking ends."""
    return (len(repr(abs(value))), abs(value))


__all__ = ["Case", "Found", "Parameter", "find", "shrink"]
