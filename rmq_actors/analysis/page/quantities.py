"""Numbers as readers want them."""

from __future__ import annotations

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def count(number: int) -> str:
    """Thousands apart: 12,345."""
    return f"{number:,}"


def plural(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def size(size_bytes: float) -> str:
    """Three digits and a binary unit: 1.21 MiB."""
    value, unit = float(size_bytes), 0
    while abs(value) >= 1024 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{_digits(value)} {_BYTE_UNITS[unit]}"


def milliseconds(duration_ms: float) -> str:
    """Three digits and us, ms or s."""
    if duration_ms >= 1000:
        return f"{_digits(duration_ms / 1000)} s"
    if 0 < duration_ms < 0.1:
        return f"{_digits(duration_ms * 1000)} µs"
    return f"{_digits(duration_ms)} ms"


def seconds(duration_s: float) -> str:
    """Minutes and seconds from two minutes on, three digits of seconds below."""
    if duration_s >= 7200:
        return f"{duration_s / 3600:.1f} h"
    if duration_s >= 120:
        return f"{int(duration_s // 60)} min {int(duration_s % 60)} s"
    return milliseconds(duration_s * 1000)


def share(part: int, whole: int) -> str:
    """A percentage that is 0 % or 100 % only when it is."""
    if part in {0, whole}:
        return "100 %" if part else "0 %"
    return f"{min(99.0, max(1.0, 100 * part / whole)):.0f} %"


def _digits(value: float) -> str:
    """Three significant digits, without trailing zeros after the point."""
    places = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
