"""`python -m tests.mutants` says which mutants no longer apply, where their texts may be, and which tests are gone."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.mutants.mutant import HERE, ROOT, DoesNotApply, Edit, NotAMutant, changed, load
from tests.mutants.source import Source
from tests.mutants.suggest import suggestion


def stale(path: Path, root: Path, sources: dict[Path, Source]) -> Iterator[str]:
    """What is wrong with the mutant of a file. `sources` keeps what was read: many mutants change the same files."""
    try:
        mutant = load(path)
    except NotAMutant as error:
        yield f"is no mutant: {error}"
        return
    for test in mutant.fails:
        if not _is_there(test, root):
            yield f"names a test that is not there: {test}"
    whole: dict[Path, list[Edit]] = {}
    for edit in mutant.edits:
        target = edit.path(root)
        try:
            if target not in sources:
                sources[target] = edit.read(root)
            edit.match(sources[target])
        except DoesNotApply as error:
            hint = suggestion(edit, root)
            yield f"no longer applies: {error}; {hint}" if hint else f"no longer applies: {error}"
        else:
            whole.setdefault(target, []).append(edit)
    for target, together in whole.items():
        try:
            changed(sources[target], together)
        except DoesNotApply as error:
            yield f"no longer applies: {error}"


def _is_there(test: str, root: Path) -> bool:
    """Whether a file defines the test: "tests/<file>.py::<test>", perhaps with a parameter in brackets."""
    path, _, name = test.partition("[")[0].partition("::")
    file = root / path
    return (
        file.is_file()
        and re.search(rf"^ *(async )?def {re.escape(name)}\(", file.read_text(), re.MULTILINE) is not None
    )


def main() -> int:
    """Exit code 1 if one does not apply."""
    sources: dict[Path, Source] = {}
    found = False
    for path in sorted(HERE.glob("*.toml")):
        for what in stale(path, ROOT, sources):
            found = True
            print(f"error: {path.relative_to(ROOT)} {what}", file=sys.stderr)
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
