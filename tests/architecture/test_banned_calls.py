"""Services may not reach the real clock, network, threads or randomness: the linter refuses it."""

from __future__ import annotations

import pytest

from tests.architecture.project_copy import ProjectCopy

USES = {
    "time": "import time",
    "random": "from random import Random",
    "secrets": "import secrets",
    "uuid": "from uuid import uuid4",
    "socket": "import socket",
    "threading": "import threading",
    "asyncio": "import asyncio",
    "concurrent.futures": "import concurrent.futures",
    "os.urandom": "import os\n\nKEY = os.urandom(8)",
    "datetime.datetime.now": "import datetime\n\nNOW = datetime.datetime.now(datetime.UTC)",
}
EXEMPT = (
    "rmq_actors/real_io/probe.py",
    "rmq_actors/embedding/probe.py",
    "rmq_actors/actors/asyncio_host.py",
    "rmq_actors/cli/probe.py",
    "rmq_actors/analysis/jobs/probe.py",
    "sim_net/kernel/entropy.py",
    "tests/unit/probe.py",
)


@pytest.mark.parametrize("path", ["rmq_actors/store/probe.py", "rmq_actors/ha/probe.py", "sim_net/probe.py"])
def test_banned_names_are_refused(project_copy: ProjectCopy, path: str) -> None:
    project_copy.append(path, "\n".join(USES.values()))
    outcome = project_copy.ruff_check(path)
    assert {name for name in USES if f"TID251 `{name}` is banned" in outcome.output} == {*USES}
    assert outcome.exit_code == 1


@pytest.mark.parametrize("path", EXEMPT)
def test_where_the_real_world_begins_it_is_allowed(project_copy: ProjectCopy, path: str) -> None:
    (project_copy.root / path).unlink(missing_ok=True)
    project_copy.append(path, "\n".join(USES.values()))
    assert "TID251" not in project_copy.ruff_check(path).output
