"""What the Makefile refuses: a Python that is too old, a mutant that no longer applies."""

from __future__ import annotations

import pytest

from tests.architecture.project_copy import ProjectCopy

MUTANT = """--- a/target.txt
+++ b/target.txt
@@ -1 +1 @@
-{was}
+mutated
"""


def test_an_old_python_is_named(project_copy: ProjectCopy) -> None:
    outcome = project_copy.run("make", "PYTHON=", "test")
    assert "error: Python 3.11 or later is needed" in outcome.output
    assert outcome.exit_code != 0


@pytest.mark.parametrize(("was", "applies"), [("original", True), ("something else", False)])
def test_a_mutant_that_does_not_apply_fails_the_check(project_copy: ProjectCopy, was: str, applies: bool) -> None:
    project_copy.append("target.txt", "original\n")
    project_copy.append("tests/mutants/one.diff", MUTANT.format(was=was))
    outcome = project_copy.run("make", "mutants-apply")
    assert (outcome.exit_code == 0) is applies
    assert ("error: tests/mutants/one.diff no longer applies" in outcome.output) is not applies
