"""Servers may open as many files as their user lets them."""

from __future__ import annotations

import resource
import subprocess
import sys

RUN = """
import resource
from rmq_actors.cli.open_files_limit import allow_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 2000))
allow_open_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_limit_is_raised_as_far_as_it_goes() -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 2000
    printed = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True).stdout
    assert printed == "(2000, 2000)\n"
