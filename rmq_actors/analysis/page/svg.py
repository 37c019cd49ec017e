"""SVG by hand: elements as text, and scales with round ticks. Colours come from the page's style sheet by class."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import attrs


def element(tag: str, text: str | None = None, **attributes: str | float | None) -> str:
    """One element. `class_` is class, other underscores become hyphens, None leaves an attribute out."""
    return _open(tag, attributes) + (html.escape(text) if text is not None else "") + f"</{tag}>"


def group(children: Sequence[str], **attributes: str | float | None) -> str:
    """A `g` element."""
    return _open("g", attributes) + "".join(children) + "</g>"


def mark(tag: str, tip: str, **attributes: str | float | None) -> str:
    """An element that stands for data: the page counts these. `tip` shows when the pointer rests on it."""
    class_ = f"mark {attributes.pop('class_', '') or ''}".strip()
    return _open(tag, {"class_": class_, **attributes}) + element("title", tip) + f"</{tag}>"


def _open(tag: str, attributes: dict[str, str | float | None]) -> str:
    parts = [f"<{tag}"]
    for name, value in attributes.items():
        if value is None:
            continue
        text = value if isinstance(value, str) else number(value)
        parts.append(f' {name.rstrip("_").replace("_", "-")}="{html.escape(text)}"')
    return "".join([*parts, ">"])


def number(value: float) -> str:
    """A coordinate, to a hundredth. Raises `ValueError` for what no plot can show."""
    if not math.isfinite(value):
        raise ValueError(f"no coordinate: {value}")
    return f"{value:.2f}".rstrip("0").rstrip(".")


@attrs.frozen
class Plot:
    """A finished plot. `title` and `description` are read out to readers who cannot see it."""

    id: str
    title: str
    description: str
    width: float
    height: float
    children: Sequence[str]

    def render(self) -> str:
        """The `svg` element."""
        head = element("title", self.title, id=f"{self.id}-title") + element(
            "desc", self.description, id=f"{self.id}-desc"
        )
        opened = _open(
            "svg",
            {
                "id": self.id,
                "class_": "plot",
                "role": "img",
                "aria_labelledby": f"{self.id}-title {self.id}-desc",
                "viewBox": f"0 0 {number(self.width)} {number(self.height)}",
            },
        )
        return opened + head + "".join(self.children) + "</svg>"


@attrs.frozen
class LinearScale:
    """From values to coordinates, in proportion."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        span = self.high - self.low
        return self.begin + (self.end - self.begin) * ((value - self.low) / span if span else 0.0)

    def ticks(self, about: int, base: int = 10) -> list[float]:
        """Some `about` round values within. `base` 1024 gives round sizes in bytes."""
        step = _round_step((self.high - self.low) / max(about, 1), base)
        if step <= 0:
            return [self.low]
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]


@attrs.frozen
class SymlogScale:
    """Proportional near 0, logarithmic beyond `linear`, on both sides: for mostly small values with rare towers."""

    low: float
    high: float
    begin: float
    end: float
    linear: float

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        low, high = self._bend(self.low), self._bend(self.high)
        return self.begin + (self.end - self.begin) * (self._bend(value) - low) / (high - low)

    def _bend(self, value: float) -> float:
        return math.copysign(math.log1p(abs(value) / self.linear), value)

    def ticks(self, factor: float) -> list[float]:
        """0, and `linear` times each power of `factor`, as far as they are within."""
        found = [0.0]
        tick = self.linear
        while tick <= max(self.high, -self.low):
            found += [value for value in (tick, -tick) if self.low <= value <= self.high]
            tick *= factor
        return found


def _round_step(at_least: float, base: int) -> float:
    if at_least <= 0:
        return 0.0
    unit = float(base) ** math.floor(math.log(at_least, base) + 1e-12)
    steps = (1, 2, 5, 10) if base == 10 else (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    return next((unit * step for step in steps if unit * step >= at_least * (1 - 1e-9)), unit * base)


@attrs.frozen
class LogScale:
    """From values above 0 to coordinates, by their logarithms."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        span = math.log(self.high / self.low)
        return self.begin + (self.end - self.begin) * (math.log(value / self.low) / span if span else 0.0)

    def ticks(self) -> list[float]:
        """The powers of ten within."""
        first = math.ceil(math.log10(self.low) - 1e-9)
        last = math.floor(math.log10(self.high) + 1e-9)
        return [10.0**power for power in range(first, last + 1)]
