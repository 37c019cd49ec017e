"""Charts of runs and faults: a square per run, a bar per kind of fault, a shrunk schedule as a timeline."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from rmq_actors.analysis.demo_facts import PlantedBugFacts, ScheduledFault
from rmq_actors.analysis.page import quantities
from rmq_actors.analysis.page.svg import LinearScale, Plot, element, group, mark
from rmq_actors.analysis.report_data import Result, RunRow

_WIDTH = 960.0
#: More squares than this cannot be told apart: then one stands for several runs.
_SQUARES_MAX = 1200
_WORST_FIRST: tuple[Result, ...] = ("failed", "incomplete", "caught", "passed")


def run_squares(runs: Sequence[RunRow]) -> Plot:
    """Every run a square in the colour of its result, scenario by scenario."""
    per_square = math.ceil(len(runs) / _SQUARES_MAX)
    scenarios = dict.fromkeys((run.campaign, run.scenario, run.is_real) for run in runs)
    pitch = _pitch(math.ceil(len(runs) / per_square))
    columns = int(_WIDTH // pitch)
    children, top = [], 0.0
    for campaign, scenario, is_real in scenarios:
        of_scenario = [
            run for run in runs if (run.campaign, run.scenario, run.is_real) == (campaign, scenario, is_real)
        ]
        squares = [of_scenario[first : first + per_square] for first in range(0, len(of_scenario), per_square)]
        source = "real brokers" if is_real else "simulated"
        bugs = sorted({run.planted_bug for run in of_scenario if run.planted_bug is not None})
        planted = f", planted bug {', '.join(bugs)}" if bugs else ""
        label = f"{campaign} / {scenario}, {source}{planted}: {quantities.plural(len(of_scenario), 'run')}"
        children.append(element("text", label, x=0, y=top + 13, class_="axis-label"))
        top += 22
        for index, square in enumerate(squares):
            x, y = (index % columns) * pitch, top + (index // columns) * pitch
            children.append(_square(square, x, y, pitch - max(1.5, pitch / 9)))
        top += math.ceil(len(squares) / columns) * pitch + 14
    each = "Each square is a run" if per_square == 1 else f"Each square is {per_square} runs, coloured as the worst"
    results = Counter(run.result for run in runs)
    summary = ", ".join(f"{results[result]} {result}" for result in _WORST_FIRST if results[result])
    return Plot("plot-runs", "Every run by its result", f"{each}. {summary}.", _WIDTH, top, children)


def _pitch(squares: int) -> float:
    """The distance of squares: as large as looks well, small enough for some 12 rows."""
    return max(12.0, min(26.0, math.sqrt(_WIDTH * 260 / squares)))


def _square(runs: Sequence[RunRow], x: float, y: float, side: float) -> str:
    worst = next(result for result in _WORST_FIRST if any(run.result == result for run in runs))
    if len(runs) == 1:
        tip = f"seed {runs[0].seed}: {runs[0].outcome}; {faults_text(runs[0].faults_fired) or 'no faults'}"
    else:
        outcomes = Counter(run.outcome for run in runs)
        ended = ", ".join(f"{times} {outcome}" for outcome, times in sorted(outcomes.items()))
        tip = f"seeds {runs[0].seed} to {runs[-1].seed}: {ended}"
    square = mark("rect", tip, x=x, y=y, width=side, height=side, rx=side / 7, class_=f"fill-{worst}")
    if worst == "passed":
        return square
    # Not by colour alone.
    low, high = side * 0.3, side * 0.7
    strokes = f"M{x + low:.1f} {y + low:.1f}L{x + high:.1f} {y + high:.1f}"
    if worst != "incomplete":
        strokes += f"M{x + high:.1f} {y + low:.1f}L{x + low:.1f} {y + high:.1f}"
    return square + element("path", d=strokes, class_="square-sign")


def faults_text(faults: Mapping[str, int]) -> str:
    """`2 Kill, Stall`."""
    return ", ".join(f"{times} {kind}" if times > 1 else kind for kind, times in sorted(faults.items()))


@attrs.frozen
class _Bar:
    name: str
    runs: int
    times: int


def fault_bars(runs: Sequence[RunRow]) -> list[Plot]:
    """Two plots over the same runs: faults made, and faults that the brokers noticed. Fewer where there is nothing."""
    made = _bars(runs, lambda run: run.faults_fired, {kind for run in runs for kind in run.faults_scheduled})
    noticed = _bars(runs, lambda run: run.faults_observed, ())
    plots = []
    for plot_id, title, bars, class_ in (
        ("plot-faults-made", "Faults made", made, "fill-fault"),
        ("plot-faults-noticed", "Faults noticed by the brokers", noticed, "fill-noticed"),
    ):
        if bars:
            plots.append(_bar_plot(plot_id, title, bars, len(runs), class_))
    return plots


def _bars(
    runs: Sequence[RunRow], faults_of: Callable[[RunRow], Mapping[str, int]], expected: Iterable[str]
) -> list[_Bar]:
    in_runs: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for run in runs:
        in_runs.update(faults_of(run).keys())
        times.update(faults_of(run))
    names = set(in_runs) | set(expected)
    return sorted((_Bar(name, in_runs[name], times[name]) for name in names), key=lambda bar: (-bar.runs, bar.name))


def _bar_plot(plot_id: str, title: str, bars: Sequence[_Bar], total: int, class_: str) -> Plot:
    width, label_width, value_width, row = 470.0, 150.0, 116.0, 26.0
    scale = LinearScale(0, max(total, 1), label_width, width - value_width)
    children = []
    for index, bar in enumerate(bars):
        y = index * row
        amount = f"{quantities.count(bar.runs)} · {quantities.share(bar.runs, total)}" if bar.runs else "never"
        tip = f"{bar.name}: in {quantities.plural(bar.runs, 'run')} of {quantities.count(total)}, {bar.times} times"
        children += [
            element("text", bar.name, x=label_width - 10, y=y + 17, class_="bar-label"),
            element(
                "rect", x=label_width, y=y + 4, width=scale(total) - label_width, height=row - 9, rx=3, class_="track"
            ),
            mark(
                "rect",
                tip,
                x=label_width,
                y=y + 4,
                width=max(scale(bar.runs) - label_width, 1.5),
                height=row - 9,
                rx=3,
                class_=class_ if bar.runs else "fill-failed",
            ),
            element(
                "text",
                amount,
                x=scale(total) + 10,
                y=y + 17,
                class_="bar-value" if bar.runs else "bar-value text-failed",
            ),
        ]
    listed = "; ".join(f"{bar.name}: {bar.runs} runs" for bar in bars)
    return Plot(plot_id, title, f"Of {total} simulated runs: {listed}.", width, len(bars) * row + 2, children)


def shrunk_timeline(bug: PlantedBugFacts) -> Plot | None:
    """The faults that are left, on the run's time. None if the bug needs none."""
    faults = sorted(bug.shrunk_schedule, key=lambda fault: (fault.at_s, fault.kind))
    if not faults:
        return None
    left, right, row, top = 250.0, 24.0, 34.0, 6.0
    end_s = max(fault.at_s + (fault.duration_s or 0.0) for fault in faults)
    scale = LinearScale(0, end_s * 1.06 or 1.0, left, _WIDTH - right)
    bottom = top + row * len(faults)
    children = []
    for tick in scale.ticks(8):
        x = scale(tick)
        children += [
            element("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"),
            element("text", f"{tick:g} s", x=x, y=bottom + 18, class_="tick-x"),
        ]
    for index, fault in enumerate(faults):
        children.append(_fault_on_timeline(fault, scale, left, top + index * row, row))
    listed = "; ".join(f"{fault.kind} {fault.where} at {fault.at_s:g} s" for fault in faults)
    return Plot("plot-shrunk", "The shrunk schedule", listed + ".", _WIDTH, bottom + 26, children)


def _fault_on_timeline(fault: ScheduledFault, scale: LinearScale, left: float, y: float, row: float) -> str:
    middle, x = y + row / 2, scale(fault.at_s)
    duration = "" if fault.duration_s is None else f", for {quantities.seconds(fault.duration_s)}"
    details = "".join(f", {name} {value}" for name, value in fault.details.items())
    tip = f"{fault.kind} {fault.where} at {fault.at_s:g} s{duration}{details}"
    if fault.duration_s is None:
        shape = mark("circle", tip, cx=x, cy=middle, r=6, class_="fill-fault")
    else:
        length = max(scale(fault.at_s + fault.duration_s) - x, 5.0)
        shape = mark("rect", tip, x=x, y=middle - 8, width=length, height=16, rx=4, class_="fill-fault")
    return group(
        [
            element("text", fault.kind, x=left - 14, y=middle - 2, class_="bar-label strong"),
            element("text", f"{fault.where}{details}", x=left - 14, y=middle + 12, class_="bar-label small"),
            element("line", x1=left, x2=_WIDTH - 24, y1=middle, y2=middle, class_="grid"),
            shape,
        ]
    )
