from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.project_copy import ProjectCopy


@pytest.fixture
def project_copy(tmp_path: Path) -> ProjectCopy:
    return ProjectCopy.make(tmp_path)
