"""What simulated runs cost here, where each process has every test of the project in its memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import attrs
import pytest

from sim_net import many_runs

#: What these test is the collector, as it is outside of such a block.
_ABOUT_THE_COLLECTOR = ("test_sim_determinism.py", "test_sim_memory.py")


@attrs.define
class _Block:
    """A block of many runs, or none."""

    _held: ExitStack = attrs.field(factory=ExitStack, init=False)
    _is_held: bool = attrs.field(default=False, init=False)

    def hold(self) -> None:
        if not self._is_held:
            self._held.enter_context(many_runs())
        self._is_held = True

    def let_go(self) -> None:
        self._held.close()
        self._is_held = False


@pytest.fixture(scope="package")
def _block() -> Iterator[_Block]:
    block = _Block()
    yield block
    block.let_go()


@pytest.fixture(autouse=True)
def _collections_leave_out_the_tests(_block: _Block, request: pytest.FixtureRequest) -> None:
    """Between runs the collector looked at all modules and tests each time: that was a third of the time here."""
    if request.path.name in _ABOUT_THE_COLLECTOR:
        _block.let_go()
    else:
        _block.hold()
