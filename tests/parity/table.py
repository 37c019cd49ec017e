"""The table of parity cases: what each shows, and whether the worlds agree."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import attrs

from tests.parity import (
    address_cases,
    connecting_cases,
    datagram_cases,
    disk_cases,
    ending_cases,
    option_cases,
    stream_cases,
)
from tests.parity.arena import SOCKET_WORLDS, Seen, moment_s
from tests.parity.disk_arena import DISK_WORLDS, SMALL_DISK_WORLDS

_MODULES = (connecting_cases, address_cases, stream_cases, ending_cases, option_cases, datagram_cases)
_LONG_MOMENT_S = 0.5


@attrs.frozen
class Case:
    """One body, and how to run it in each world; the first is the real one."""

    name: str
    family: str
    shows: str
    worlds: Mapping[str, Callable[[], Seen]]

    def seen(self) -> dict[str, Seen]:
        """What the case saw in each world; if they differ, with more patience, as this machine may be busy."""
        seen = self._run()
        if same(seen):
            return seen
        before = moment_s.set(_LONG_MOMENT_S)
        try:
            return self._run()
        finally:
            moment_s.reset(before)

    def _run(self) -> dict[str, Seen]:
        return {name: run() for name, run in self.worlds.items()}


def same(seen: Mapping[str, Seen]) -> bool:
    """Whether every world has shown the same."""
    first, *rest = seen.values()
    return all(each == first for each in rest)


def _socket_cases() -> Iterator[Case]:
    for module in _MODULES:
        for body in module.CASES:
            worlds = {name: partial(run, body) for name, run in SOCKET_WORLDS.items()}
            yield Case(body.__name__, "socket", inspect.getdoc(body) or "", worlds)


def _disk_cases() -> Iterator[Case]:
    for bodies, ways in ((disk_cases.CASES, DISK_WORLDS), (disk_cases.SMALL_DISK_CASES, SMALL_DISK_WORLDS)):
        for body in bodies:
            worlds = {name: partial(run, body) for name, run in ways.items()}
            yield Case(body.__name__, "disk", inspect.getdoc(body) or "", worlds)


CASES: tuple[Case, ...] = (*_socket_cases(), *_disk_cases())

#: What Linux does too, but not for a test without privileges; the simulated side has tests of its own.
NOT_COMPARED: Mapping[str, str] = {
    "connect to a silent host is ETIMEDOUT": "Linux gives up after two minutes, and needs a host that drops packets",
    "a peer without power": "needs a second machine, and 15 minutes for ETIMEDOUT",
    "partition, delay, loss, bandwidth": "needs a network to break (netem, as root)",
    "sizes of the buffers": "Linux counts its own overhead, and lets them grow",
    "what a power loss leaves": "needs a machine to switch off; tests/simulation/test_sim_disk_power.py has the rules",
    "EIO, a slow or stuck disk, rot": "needs a disk that breaks (device mapper, as root)",
    "rename of a directory": "EISDIR in a world: the disk port renames files alone",
    "macOS and Windows": "the reference is Linux",
}


def table(results: Mapping[tuple[str, str], str]) -> str:
    """The table, with the result of each case by family and name."""
    lines = [f"{family:8}{name:44}{results.get((family, name), 'not run'):9}{shows}" for family, name, shows in _rows()]
    lines += [f"{'-':8}{name:44}{'':9}not compared: {why}" for name, why in NOT_COMPARED.items()]
    return "\n".join(lines)


def _rows() -> list[tuple[str, str, str]]:
    return [(case.family, case.name, case.shows) for case in CASES]
