"""Charts of time: how far slaves were behind, and how long puts took."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from rmq_actors.analysis.page import quantities
from rmq_actors.analysis.page.svg import LinearScale, LogScale, Plot, SymlogScale, element, group, mark, number
from rmq_actors.analysis.report_data import FaultInterval, LagOfRun, LagSeries, LatencyBucket, LatencyOfScenario

_WIDTH = 960.0
_LEFT, _RIGHT = 96.0, 18.0
_LANE = 13.0
_LAG_HEIGHT = 150.0
#: A lag below this many bytes is a message or so; one this many times what is usual makes the axis logarithmic.
_SMALL_BYTES = 128
_TOWERS = 25
#: Slaves beyond these share the last style.
_SERIES_STYLES = 4
#: Labels of an axis that are closer cannot be read.
_TICK_DISTANCE = 13.0
_NAME_DISTANCE = 36.0
_LATENCY_HEIGHT = 110.0
_LATENCY_SCENARIOS_MAX = 4
_STATUS_CLASSES = {"PUT_OK": "fill-ok", "FLUSH_SLAVE_TIMEOUT": "fill-timeout", "FLUSH_DISK_TIMEOUT": "fill-timeout"}


def lag_plot(index: int, lag: LagOfRun) -> Plot:
    """The lag of each slave of one run over its time; above it a lane for each kind of fault, shaded down the plot."""
    kinds = list(dict.fromkeys(fault.kind for fault in lag.faults))
    top = 8.0 + _LANE * len(kinds) + (8.0 if kinds else 0.0)
    bottom = top + _LAG_HEIGHT
    end_ms = _end_ms(lag)
    across = LinearScale(0, end_ms, _LEFT, _WIDTH - _RIGHT)
    up = _lag_scale(lag, top, bottom)
    children = [*_faults(lag.faults, kinds, across, end_ms, top, bottom), *_lag_axes(across, up, bottom)]
    for position, series in enumerate(lag.series):
        children.append(_lag_line(series, position, across, up, end_ms))
    children.append(_lag_hover(lag, across, top, bottom))
    peaks = "; ".join(f"{series.slave}: {quantities.size(max(series.lag_bytes))} at most" for series in lag.series)
    faults = ", ".join(kinds) if kinds else "none"
    title = f"Replication lag of seed {lag.run.seed}, {lag.run.scenario}"
    return Plot(f"plot-lag-{index}", title, f"{peaks}. Faults: {faults}.", _WIDTH, bottom + 24, children)


def is_mostly_small(lag: LagOfRun) -> bool:
    """Whether a few buckets tower so high that the others could not be seen beside them."""
    values = sorted(abs(value) for series in lag.series for value in series.lag_bytes)
    return values[-1] > _TOWERS * max(values[int(0.9 * (len(values) - 1))], _SMALL_BYTES)


def _lag_scale(lag: LagOfRun, top: float, bottom: float) -> LinearScale | SymlogScale:
    values = [value for series in lag.series for value in series.lag_bytes]
    low, high = min(0, *values), max(1, *values) * 1.08
    if is_mostly_small(lag):
        return SymlogScale(low, high, bottom, top, _SMALL_BYTES)
    return LinearScale(low, high, bottom, top)


def _end_ms(lag: LagOfRun) -> float:
    ends = [series.first_ms + series.bucket_ms * len(series.lag_bytes) for series in lag.series]
    return max([1.0, *ends])


def _faults(
    faults: Sequence[FaultInterval], kinds: Sequence[str], across: LinearScale, end_ms: float, top: float, bottom: float
) -> list[str]:
    shaded: list[tuple[float, float]] = []
    lanes = []
    for fault in faults:
        ends_ms = end_ms if fault.end_ms is None else min(fault.end_ms, end_ms)
        x = across(min(fault.begin_ms, end_ms))
        width = max(across(ends_ms) - x, 2.0)
        y = 6.0 + _LANE * kinds.index(fault.kind)
        lasting = quantities.milliseconds(ends_ms - fault.begin_ms) if ends_ms > fault.begin_ms else "a moment"
        tip = f"{fault.kind} at {quantities.milliseconds(fault.begin_ms)} for {lasting}"
        shaded.append((x, x + width))
        lanes.append(mark("rect", tip, x=x, y=y, width=width, height=_LANE - 4, rx=2, class_="fill-fault lane"))
    children = [
        element("rect", x=x, y=top, width=end - x, height=bottom - top, class_="shade") for x, end in _joined(shaded)
    ]
    children += lanes
    for row, kind in enumerate(kinds):
        children.append(element("text", kind, x=_LEFT - 10, y=6.0 + _LANE * row + 9, class_="lane-label"))
    return children


def _joined(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """What they cover, each place once: one shade over another would be a third colour."""
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def _lag_axes(across: LinearScale, up: LinearScale | SymlogScale, bottom: float) -> list[str]:
    children = []
    if isinstance(up, SymlogScale):
        ticks = up.ticks(8 if up.high < 1e6 else 64)
    else:
        ticks = up.ticks(4, base=1024 if up.high >= 1024 else 10)
    labelled: list[float] = []
    for tick in ticks:
        y = up(tick)
        if any(abs(y - other) < _TICK_DISTANCE for other in labelled):
            continue
        labelled.append(y)
        children += [
            element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="zero" if tick == 0 else "grid"),
            element("text", quantities.size(tick), x=_LEFT - 10, y=y + 4, class_="tick-y"),
        ]
    for tick in across.ticks(8):
        text = "0" if tick == 0 else f"{tick / 1000:g} s" if across.high >= 1000 else f"{tick:g} ms"
        children.append(element("text", text, x=across(tick), y=bottom + 18, class_="tick-x"))
    return children


def _lag_line(
    series: LagSeries, position: int, across: LinearScale, up: LinearScale | SymlogScale, end_ms: float
) -> str:
    """Steps, one per bucket, with the area below them."""
    points: list[tuple[float, float]] = []
    for bucket, value in enumerate(series.lag_bytes):
        begin_ms = series.first_ms + bucket * series.bucket_ms
        y = up(value)
        points += [(across(begin_ms), y), (across(min(begin_ms + series.bucket_ms, end_ms)), y)]
    line = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in _without_repetitions(points))
    zero = number(up(0))
    area = f"{line}L{number(points[-1][0])} {zero}L{number(points[0][0])} {zero}Z"
    style = f"series-{min(position, _SERIES_STYLES - 1)}"
    tip = f"{series.slave}: at most {quantities.size(max(series.lag_bytes))}"
    return group([element("path", d=area, class_="area"), mark("path", tip, d=line, class_="line")], class_=style)


def _without_repetitions(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same line with fewer points: those between two of the same height say nothing."""
    kept = list(points[:1])
    for before, point, after in zip(points, points[1:], points[2:], strict=False):
        if not before[1] == point[1] == after[1]:
            kept.append(point)
    return [*kept, *points[max(1, len(points) - 1) :]]


def _lag_hover(lag: LagOfRun, across: LinearScale, top: float, bottom: float) -> str:
    """What the script needs to say the values under the pointer."""
    data = {
        "left": across.begin,
        "right": across.end,
        "end_ms": across.high,
        "series": [
            {
                "name": series.slave,
                "first_ms": series.first_ms,
                "bucket_ms": series.bucket_ms,
                "values": list(series.lag_bytes),
            }
            for series in lag.series
        ],
    }
    line = element("line", x1=0, x2=0, y1=top, y2=bottom, class_="hover-line")
    return group([line], class_="hover", data_lag=json.dumps(data, separators=(",", ":")))


def latency_plot(latencies: Sequence[LatencyOfScenario]) -> Plot:
    """One histogram per scenario, one above the other on one logarithmic axis, real brokers first."""
    shown = latencies[:_LATENCY_SCENARIOS_MAX]
    has_zero = any(bucket.lower_ms == 0 for latency in shown for bucket in latency.buckets)
    # Answers in no time have no place on a logarithmic axis: they stand left of it.
    across = LogScale(*_latency_range_ms(shown), _LEFT + (44.0 if has_zero else 0.0), _WIDTH - _RIGHT)
    children, top = [], 0.0
    for latency in shown:
        children.append(_latency_panel(latency, across, top))
        top += _LATENCY_HEIGHT + 68
    bottom = top - 24
    children += [
        element("text", quantities.milliseconds(tick), x=across(tick), y=bottom + 16, class_="tick-x")
        for tick in across.ticks()
    ]
    if has_zero:
        children.append(element("text", "0", x=_LEFT + 14, y=bottom + 16, class_="tick-x"))
    described = "; ".join(_latency_text(latency) for latency in shown)
    return Plot("plot-latency", "Latency of puts", described + ".", _WIDTH, bottom + 24, children)


def _latency_range_ms(latencies: Sequence[LatencyOfScenario]) -> tuple[float, float]:
    """All buckets but the one from 0, at least two powers of ten."""
    buckets = [bucket for latency in latencies for bucket in latency.buckets if bucket.lower_ms > 0]
    low = min((bucket.lower_ms for bucket in buckets), default=0.1)
    high = max((bucket.upper_ms for bucket in buckets), default=10.0)
    missing = max(0.0, 2.0 - math.log10(high / low))
    return low / 10 ** (missing / 2), high * 10 ** (missing / 2)


def _latency_text(latency: LatencyOfScenario) -> str:
    total = sum(latency.puts.values())
    text = (
        f"{'Real brokers' if latency.is_real else 'Simulated'}, {latency.scenario}: {quantities.plural(total, 'put')}"
    )
    if latency.p50_ms is not None and latency.p99_ms is not None:
        half, most = (quantities.milliseconds(value) for value in (latency.p50_ms, latency.p99_ms))
        text += f", half of those confirmed within {half}, 99 % within {most}"
    return text


def _latency_panel(latency: LatencyOfScenario, across: LogScale, top: float) -> str:
    total = sum(latency.puts.values())
    base = top + 40 + _LATENCY_HEIGHT
    highest = max(sum(bucket.puts.values()) for bucket in latency.buckets) / total
    up = LinearScale(0, highest * 1.05, base, top + 40)
    children = [element("text", _latency_text(latency), x=0, y=top + 14, class_="axis-label")]
    for tick in up.ticks(3):
        y = up(tick)
        children += [
            element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="grid" if tick else "zero"),
            element("text", f"{100 * tick:g} %", x=_LEFT - 10, y=y + 4, class_="tick-y"),
        ]
    for tick in across.ticks():
        children.append(element("line", x1=across(tick), x2=across(tick), y1=up(up.high), y2=base, class_="grid"))
    for bucket in latency.buckets:
        children += _latency_bar(bucket, total, across, up)
    return group([*children, *_quantiles(latency, across, up(up.high), base)])


def _quantiles(latency: LatencyOfScenario, across: LogScale, top: float, base: float) -> list[str]:
    """A line at the median and one at the 99th percentile, named above the bars; two names too close become one."""
    found = [
        (name, across(value))
        for name, value in (("50 %", latency.p50_ms), ("99 %", latency.p99_ms))
        if value is not None and value >= across.low
    ]
    is_tight = len(found) == 2 and found[1][1] - found[0][1] < _NAME_DISTANCE
    labels = [("50 % and 99 %", found[0][1])] if is_tight else found
    lines = [element("line", x1=x, x2=x, y1=top - 2, y2=base, class_="quantile") for _, x in found]
    return lines + [element("text", name, x=x, y=top - 6, class_="quantile-label") for name, x in labels]


def _latency_bar(bucket: LatencyBucket, total: int, across: LogScale, up: LinearScale) -> list[str]:
    """The bar of one bucket: confirmed puts at the bottom, the others upon them."""
    x, right = (_LEFT + 4, _LEFT + 24) if bucket.lower_ms == 0 else (across(bucket.lower_ms), across(bucket.upper_ms))
    children, below = [], 0
    for status in sorted(bucket.puts, key=lambda status: (status != "PUT_OK", status)):
        puts = bucket.puts[status]
        upper, lower = up((below + puts) / total), up(below / total)
        below += puts
        range_text = f"{quantities.milliseconds(bucket.lower_ms)} to {quantities.milliseconds(bucket.upper_ms)}"
        tip = f"{quantities.plural(puts, 'put')} with {status} in {range_text}"
        height = max(lower - upper, 1.0)
        children.append(
            mark(
                "rect",
                tip,
                x=x + 0.5,
                y=lower - height,
                width=right - x - 1,
                height=height,
                class_=_STATUS_CLASSES.get(status, "fill-other"),
            )
        )
    return children
