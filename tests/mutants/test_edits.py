"""What a mutant's file means, what is refused, and what is said when it no longer applies."""

from __future__ import annotations

import subprocess
from pathlib import Path

import attrs
import pytest

from tests.mutants import make
from tests.mutants.__main__ import stale
from tests.mutants.make import edits_between
from tests.mutants.mutant import DoesNotApply, Mutant, NotAMutant, changed, dump, load, load_all
from tests.mutants.source import Source

LOG = '''"""A log."""

import attrs


def flush(log):
    if log.dirty:
        log.sync()

    log.dirty = False


@attrs.define
class Log:
    dirty = False

    @property
    def end(self):
        return self._end

    @end.setter
    def end(self, end):
        self._end = end

    def flush(self):
        if self.dirty:
            self.sync()
        self.dirty = False
        self.sync()
'''

MUTANT = """wrong = "It is not synced."
fails = [
    "tests/test_log.py::test_flush",
]

[[edits]]
where = "{where}"
old = '''
if log.dirty:
    log.sync()
'''
new = '''
pass
'''
"""


def tree(root: Path, **modules: str) -> Path:
    (root / "rmq_actors").mkdir()
    for name, text in modules.items():
        (root / "rmq_actors" / f"{name}.py").write_text(text)
    (root / "tests").mkdir()
    (root / "tests" / "test_log.py").write_text("async def test_flush(log):\n    ...\n")
    return root


def mutant_file(root: Path, text: str) -> Path:
    path = root / "flush_without_sync.toml"
    path.write_text(text)
    return path


def told(root: Path, where: str, text: str = MUTANT) -> list[str]:
    return [
        what.removeprefix("no longer applies: ")
        for what in stale(mutant_file(root, text.format(where=where)), root, {})
    ]


def test_the_lines_are_replaced_at_their_depth(tmp_path: Path) -> None:
    tree(tmp_path, log=LOG)
    load(mutant_file(tmp_path, MUTANT.format(where="rmq_actors.log:flush"))).apply(tmp_path)
    assert (tmp_path / "rmq_actors" / "log.py").read_text() == LOG.replace(
        "    if log.dirty:\n        log.sync()\n", "    pass\n"
    )


@pytest.mark.parametrize("tests", ["def test_flush_twice():\n    ...\n", "flush = test_flush()\n", None])
def test_a_test_that_is_gone_is_named(tmp_path: Path, tests: str | None) -> None:
    """Only the run of that mutant found it, and `make test` runs one in 48."""
    file = tree(tmp_path, log=LOG) / "tests" / "test_log.py"
    file.unlink()
    if tests is not None:
        file.write_text(tests)
    assert told(tmp_path, "rmq_actors.log:flush") == ["names a test that is not there: tests/test_log.py::test_flush"]


def test_a_test_may_be_named_with_a_parameter(tmp_path: Path) -> None:
    tree(tmp_path, log=LOG)
    text = MUTANT.replace("::test_flush", "::test_flush[twice - or more]")
    assert told(tmp_path, "rmq_actors.log:flush", text) == []
    assert told(tmp_path, "rmq_actors.log:flush", text.replace("::test_flush[", "::test_sync[")) == [
        "names a test that is not there: tests/test_log.py::test_sync[twice - or more]"
    ]


def test_a_function_that_moves_within_its_file_needs_nothing(tmp_path: Path) -> None:
    head, function, rest = LOG.partition(LOG[LOG.index("def flush(log)") : LOG.index("@attrs.define")])
    tree(tmp_path, log=head + rest + "\n\n" + function)
    assert told(tmp_path, "rmq_actors.log:flush") == []


def test_a_function_that_becomes_a_method_needs_another_where(tmp_path: Path) -> None:
    method = (
        "class File:\n    def flush(log):\n        with log:\n            if log.dirty:\n                log.sync()\n"
    )
    tree(tmp_path, log="class Log: ...\n", file=method)
    assert told(tmp_path, "rmq_actors.log:flush") == [
        "there is no rmq_actors.log:flush; the old text is in rmq_actors.file:File.flush"
    ]
    load(mutant_file(tmp_path, MUTANT.format(where="rmq_actors.file:File.flush"))).apply(tmp_path)
    assert (tmp_path / "rmq_actors" / "file.py").read_text().endswith("        with log:\n            pass\n")


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("rmq_actors.gone:flush", "there is no rmq_actors.gone"),
        ("rmq_actors.log:Log.flush", "rmq_actors.log:Log.flush does not have the old text"),
    ],
)
def test_the_place_that_has_the_text_is_named(tmp_path: Path, where: str, what: str) -> None:
    tree(tmp_path, log=LOG)
    assert told(tmp_path, where) == [f"{what}; the old text is in rmq_actors.log:flush"]


def test_the_line_that_is_most_like_it_is_named(tmp_path: Path) -> None:
    tree(tmp_path, log=LOG.replace("log.dirty:", "log.is_dirty:"))
    (what,) = told(tmp_path, "rmq_actors.log:flush")
    assert what.startswith("rmq_actors.log:flush does not have the old text; most like it is line 7 of rmq_actors.log:")
    assert what.endswith("rmq_actors.log:flush: if log.is_dirty:")


def test_a_text_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    tree(tmp_path, log=LOG + "\n\ndef again(log):\n    if log.dirty:\n        log.sync()\n")
    assert told(tmp_path, "rmq_actors.log:flush") == []
    (what,) = told(tmp_path, "rmq_actors.log")
    assert what.startswith("rmq_actors.log has the old text 2 times, at lines 7, 33: take more lines into it; ")
    assert what.endswith("the old text is in rmq_actors.log:flush, rmq_actors.log:again")


def test_a_property_and_its_setter_are_looked_through_together(tmp_path: Path) -> None:
    source = Source.of_python(LOG)
    assert [len(source.find([line], "Log.end")) for line in ("return self._end", "self._end = end", "@property")] == [
        1
    ] * 3


def test_lines_that_differ_in_depth_are_another_text() -> None:
    source = Source.of_python(LOG)
    assert source.find(["if self.dirty:", "self.sync()"]) == []
    assert [match.first for match in source.find(["    self.sync()", "self.dirty = False"])] == [26]


def test_two_edits_of_one_line_are_refused() -> None:
    (edit,) = edits_between("rmq_actors.log", LOG, LOG.replace("log.dirty = False", "pass"))
    with pytest.raises(DoesNotApply, match=r"two edits of rmq_actors\.log:flush change line 10: make them one"):
        changed(Source.of_python(LOG), [edit, edit])


@pytest.mark.parametrize(
    ("was", "becomes", "where", "old", "new"),
    [
        ("log.dirty = False", "pass", "log:flush", ["log.dirty = False"], ["pass"]),
        ("        self.dirty = False\n", "", "log:Log.flush", ["self.dirty = False"], []),
        # A line that is there twice takes the next one with it.
        ("self.sync()\n        self", "pass\n        self", "log:Log.flush", ["if self.dirty:", "    self.sync()"],
         ["if self.dirty:", "    pass"]),
        # What is inserted is found by a line beside it, in whose object it is by its depth.
        ("import attrs\n", "import attrs\nimport os\n", "log", ["import attrs"], ["import attrs", "import os"]),
        ("    dirty = False\n\n", "    dirty = False\n    size = 0\n\n", "log:Log", ["dirty = False"],
         ["dirty = False", "size = 0"]),
        ("    @end.setter", "    def size(self):\n        return 0\n\n    @end.setter", "log:Log", ["@end.setter"],
         ["def size(self):", "    return 0", "", "@end.setter"]),
        # Changes that are near each other in one object are one.
        ("log.sync()\n\n    log.dirty = False", "pass\n\n    pass", "log:flush",
         ["    log.sync()", "", "log.dirty = False"], ["    pass", "", "pass"]),
    ],
)  # fmt: skip
def test_a_mutant_is_made_of_few_lines(was: str, becomes: str, where: str, old: list[str], new: list[str]) -> None:
    after = LOG.replace(was, becomes)
    assert after != LOG
    (edit,) = edits_between("rmq_actors.log", LOG, after)
    assert (edit.where, list(edit.old), list(edit.new)) == (f"rmq_actors.{where}", old, new)
    assert changed(Source.of_python(LOG), [edit]) == after


def test_changes_of_two_objects_are_two_edits() -> None:
    after = LOG.replace("return self._end", "return 0").replace("self._end = end", "pass").replace("import attrs\n", "")
    edits = edits_between("rmq_actors.log", LOG, after)
    assert [edit.where for edit in edits] == ["rmq_actors.log", *["rmq_actors.log:Log.end"] * 2]
    assert changed(Source.of_python(LOG), edits[::-1]) == after


def test_a_file_that_is_not_python_has_no_names() -> None:
    (edit,) = edits_between("", 'a = [\n    "one",\n]\n', "a = [\n]\n", file="pyproject.toml")
    assert (edit.where, edit.file, edit.old, edit.new) == ("", "pyproject.toml", ('"one",',), ())


def test_each_mutant_is_written_as_it_is_read(tmp_path: Path) -> None:
    for mutant in load_all():
        path = tmp_path / f"{mutant.name}.toml"
        path.write_text(dump(mutant))
        assert load(path) == mutant


def test_the_command_takes_what_the_index_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tree(tmp_path, log=LOG) / "rmq_actors" / "log.py"
    (tmp_path / "sim_net").mkdir()
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.setattr(make, "ROOT", tmp_path)
    monkeypatch.setattr(make, "HERE", tmp_path)
    for command in ("init", "add ."):
        subprocess.run(["git", "-C", str(tmp_path), *command.split()], check=True, stdout=subprocess.PIPE)
    path = tmp_path / "flush_without_sync.toml"
    arguments = ["--wrong", "It is not synced.", "--fails", "tests/test_log.py::test_flush"]
    assert make.main(["flush_without_sync", *arguments]) == 1  # nothing is changed
    log.write_text(LOG.replace("    if log.dirty:\n        log.sync()\n", "    pass\n"))
    assert make.main(["flush_without_sync"]) == 1  # nothing says who must see it
    assert not path.exists()
    assert make.main(["flush_without_sync", *arguments]) == 0
    assert path.read_text() == MUTANT.format(where="rmq_actors.log:flush")
    log.write_text(LOG.replace("    dirty = False\n\n", "    dirty = True\n\n"))
    assert make.main(["flush_without_sync"]) == 0
    again = load(path)
    assert (again.fails, [edit.where for edit in again.edits]) == (
        ("tests/test_log.py::test_flush",),
        ["rmq_actors.log:Log"],
    )


@pytest.mark.parametrize("line", ["x = '''a'''", "x = '\t'", 'x = "\\\\"', "x = 'é'"])
def test_any_line_can_be_written(line: str, tmp_path: Path) -> None:
    edit = attrs.evolve(edits_between("rmq_actors.a", "x = 1\n", "x = 2\n")[0], old=(line,))
    mutant = Mutant("flush_without_sync", 'It says "no".', (edit,), expect="ack", seeds="0:1")
    assert load(mutant_file(tmp_path, dump(mutant))) == mutant


@pytest.mark.parametrize(
    ("was", "becomes", "error"),
    [
        ("fails", "fials", "it has edits, fials, wrong; wanted: edits, fails, wrong or edits, expect, seeds, wrong"),
        ("pass", "if log.dirty:\n    log.sync()", "an edit changes nothing"),
        ("if log.dirty:\n    log.sync()", "", "an edit has no old text"),
        ("It is not synced.", "", "says nothing in `wrong`"),
        ("{where}", "os.path", "os.path is no module of rmq_actors or sim_net"),
    ],
)
def test_what_is_no_mutant_is_refused(was: str, becomes: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(NotAMutant, match=error):
        load(mutant_file(tmp_path, MUTANT.replace(was, becomes).format(where="rmq_actors.log:flush")))
