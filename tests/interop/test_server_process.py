"""Ports are given out once: several test processes choose them beside each other, long before servers bind them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.worlds.server_process import free_broker_port

PROJECT = Path(__file__).parents[2]
#: Chosen by nothing but chance, so many of 12,000 would have several in common.
BROKERS = 150

OTHER_PROCESS = f"""
import sys
from tests.worlds.server_process import free_broker_port
print(*(free_broker_port() for _ in range({BROKERS})), flush=True)
sys.stdin.read()
"""


def ports_of(brokers: Iterable[int]) -> Iterator[int]:
    """What brokers listen on."""
    for port in brokers:
        yield from (port - 2, port, port + 1)


def test_no_two_brokers_have_a_port_in_common() -> None:
    command = [sys.executable, "-c", OTHER_PROCESS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT) as other:
        assert other.stdout is not None
        theirs = [int(port) for port in other.stdout.readline().split()]
        ours = [free_broker_port() for _ in range(BROKERS)]
        other.communicate()
    ports = [*ports_of(theirs), *ports_of(ours)]
    assert len(theirs) == BROKERS
    assert len(ports) == len({*ports})
