"""Hostile peers. A case is a function of a seed; tests run some seeds, `make fuzz` as many as there is time for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.fuzz import access_control_case, client_case, decoder_case, name_server_case, server_case

#: Raises if something is wrong; how many of what it saw.
Case = Callable[[int], Mapping[str, int] | None]

CASES: Final[Mapping[str, Case]] = {
    "decoder": decoder_case.run,
    "server": server_case.run,
    "client": client_case.run,
    "name_server": name_server_case.run,
    "access_control": access_control_case.run,
}
