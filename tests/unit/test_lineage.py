"""`Lineage`: where two logs diverge, without a copy of either."""

from __future__ import annotations

import pytest

from rmq_actors.testing.lineage import Lineage

SIZE = 200_000


@pytest.mark.parametrize("at", [0, 1, 65_535, 65_536, 65_537, 131_072, SIZE - 1])
def test_logs_are_the_same_up_to_the_first_byte_that_differs(at: int) -> None:
    one, two = Lineage(bytearray(SIZE)), Lineage(bytearray(SIZE))
    two.log[at] = 1
    two.log[-1] = 1
    assert one.common(two) == two.common(one) == at


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, SIZE])
def test_a_log_that_another_goes_on_with_is_common(size: int) -> None:
    whole = Lineage(bytearray(SIZE))
    assert whole.common(Lineage(bytearray(size))) == Lineage(bytearray(size)).common(whole) == size
    assert whole.common(whole) == SIZE
