"""Turns of phrase that tire a reader, and that CONTRIBUTING.md#language replaces: the product's sources have none."""

from __future__ import annotations

import re

import pytest

from tests.architecture.project_copy import PROJECT

PHRASES = {
    "again": re.compile(r"\banew\b"),
    "diverges from": re.compile(r"\bparts? from (?:its|the|their)\b|\bwhere the(?: logs| two)? part\b"),
    "a subject first": re.compile(r'^ *(?:#:? |""")Of [a-z]+', re.MULTILINE),
    "one per": re.compile(
        r"\b(?:one|once) a (?:slave|connection|key|run|put|file|minute|request|queue|node|module|line|peer)\b"
    ),
    "which one it follows": re.compile(r"\bwhom (?:it|each|this|a)\b"),
}
#: Rooms whose sources were written before the page of style.
EARLIER = ("rmq_actors/store/", "rmq_actors/ha/", "rmq_actors/actors/", "sim_net/")
SOURCES = [
    path
    for package in ("rmq_actors", "sim_net")
    for path in (PROJECT / package).rglob("*.py")
    if not str(path.relative_to(PROJECT)).startswith(EARLIER)
]


@pytest.mark.parametrize("plain", PHRASES)
def test_no_source_has_it(plain: str) -> None:
    found = {str(path.relative_to(PROJECT)): PHRASES[plain].findall(path.read_text()) for path in SOURCES}
    assert {name: phrases for name, phrases in found.items() if phrases} == {}


def test_the_phrases_are_found() -> None:
    text = '"""Of two addresses the later one counts."""\n# where the two part: one a slave, made anew for whom it asks'
    assert all(phrase.search(text) for phrase in PHRASES.values())
