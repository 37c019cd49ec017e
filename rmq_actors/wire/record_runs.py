"""Runs of records of one size, found with numpy: what a producer sends is often of one size."""

from __future__ import annotations

from rmq_actors.ports.disk import BytesLike

#: After so many records of one size the next ones are looked for at that distance, so many at first.
RUN_AFTER = 16
RUN_RECORDS = 512


def run_length(data: BytesLike, position: int, size: int, most: int) -> int:
    """How many records with the size and magic number of the one at `position` stand one after another, up to `most`.

    `data` has the first 8 bytes of each of `most`, at a distance of `size`. The first call imports numpy.
    """
    import numpy as np  # noqa: PLC0415 - it takes a while, and few records are read without it

    words = np.ndarray((most,), "<u8", buffer=data, offset=position, strides=(size,))
    different = words != words[0]
    first = int(different.argmax())
    return first if different[first] else most
