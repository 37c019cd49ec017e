"""The keys of RocketMQ 4.9.7's broker, as `settings-4.9.7.txt` beside this file lists them by class."""

from __future__ import annotations

from pathlib import Path

_LIST = Path(__file__).with_name("settings-4.9.7.txt")


def listed_keys() -> dict[str, list[str]]:
    """The keys of each class, by its full name, without regard to capitals in alphabetical order."""
    classes: dict[str, list[str]] = {}
    name = ""
    for line in _LIST.read_text().splitlines():
        if line.startswith(" "):
            classes[name].append(line.strip())
        else:
            name, classes[line] = line, []
    return classes
