"""Where the old text of an edit may be now."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.mutants.mutant import Edit
from tests.mutants.source import Source, product_files

_PLACES_MAX = 5
_LIKENESS_MIN = 0.6


def suggestion(edit: Edit, root: Path) -> str:
    """The other places that have the text; or else the line that is most like its longest one; or nothing."""
    if edit.file:
        return ""
    longest = max(edit.old, key=lambda line: len(line.strip())).strip()
    files = list(product_files(root))
    places = [place for place in _places(edit, longest, files) if place != edit.where]
    if places:
        more = ", ..." if len(places) > _PLACES_MAX else ""
        return f"the old text is in {', '.join(places[:_PLACES_MAX])}{more}"
    own = [file for file in files if file[0] == edit.module]
    return _nearest(longest, own) or _nearest(longest, files)


def _places(edit: Edit, longest: str, files: Iterable[tuple[str, str]]) -> Iterator[str]:
    for module, text in files:
        if longest in text:
            source = Source.of_python(text)
            for match in source.find(edit.old):
                yield _name(module, source, match.first, match.end)


def _nearest(line: str, files: Iterable[tuple[str, str]]) -> str:
    candidates: dict[str, tuple[str, str, int]] = {}
    for module, text in files:
        for number, each in enumerate(text.split("\n")):
            candidates.setdefault(each.strip(), (module, text, number))
    for found in difflib.get_close_matches(line, candidates, n=1, cutoff=_LIKENESS_MIN):
        module, text, number = candidates[found]
        return (
            f"most like it is line {number + 1} of {_name(module, Source.of_python(text), number, number + 1)}: {found}"
        )
    return ""


def _name(module: str, source: Source, first: int, end: int) -> str:
    qualname = source.around(first, end).qualname
    return f"{module}:{qualname}" if qualname else module
