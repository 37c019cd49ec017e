"""The text of Java's properties files, and of requests that change a configuration (MixAll.properties2String)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import javaproperties

from rmq_actors.settings.configure import ConfigurationError, Properties

#: How many characters are read at most: a request may bring as many as a frame holds.
TEXT_MAX_CHARS = 256 * 1024

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"


def parse_properties(text: str, source: str) -> Properties:
    """Read properties as Java does; the last of equal keys counts. Raises `ConfigurationError` naming the line."""
    if len(text) > TEXT_MAX_CHARS:
        raise ConfigurationError(f"{source} has {len(text)} characters, at most {TEXT_MAX_CHARS} are read")
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in _logical_lines(text):
        try:
            ((key, value),) = javaproperties.loads(line, object_pairs_hook=list)
        except javaproperties.InvalidUEscapeError as error:
            raise ConfigurationError(f"{source}, line {number}: {error}") from error
        values[key], lines[key] = value, number
    return Properties(source, values, lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line that is neither blank nor a comment, with its continuation lines, and the number of the first of them.

    javaproperties can do that too, but reads the whole line again for each continuation.
    """
    first, parts = 0, list[str]()
    for number, whole in enumerate(_LINE_END.split(text), 1):
        line = whole.lstrip(_BLANKS)
        if not parts:
            if not line or line[0] in "#!":
                continue
            first = number
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        part = line[:-1] if is_continued else line
        if part:
            parts.append(part)
        if parts and not is_continued:
            yield first, "".join(parts)
            parts.clear()
    if parts:
        yield first, "".join(parts)


def format_properties(values: Mapping[str, str]) -> str:
    """One `key=value` per line, as RocketMQ writes them: escaped only if they could not be read back otherwise."""
    return "".join(f"{_line(key, value)}\n" for key, value in values.items())


def _line(key: str, value: str) -> str:
    plain = f"{key}={value}"
    try:
        reads_back = plain.isascii() and parse_properties(plain, "").values == {key: value}
    except ConfigurationError:
        reads_back = False
    return plain if reads_back else javaproperties.join_key_value(key, value)
