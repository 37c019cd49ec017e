"""Records that are in the log and in nothing that is derived from it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import attrs

from rmq_actors.wire.dispatch_request import DispatchRequest
from rmq_actors.wire.record import MAX_PROPERTIES_BYTES

_log = logging.getLogger(__name__)


@attrs.define(eq=False, repr=False)
class PassedOver:
    """Takes records out that no dispatcher is given (`DispatchRequest.is_passed_over`), and counts them.

    The first one is named in the log. Batches come in the log's order, and again after an error.
    """

    count: int = 0
    _counted_to: int = attrs.field(default=0, init=False)

    def take_out(self, batch: Sequence[DispatchRequest]) -> Sequence[DispatchRequest]:
        """The batch without them."""
        found = [each for each in batch if each.is_passed_over]
        if not found:
            return batch
        if not self.count:
            _log.warning(
                "the record at %d of %s-%d has more than %d bytes of properties, which RocketMQ cannot read: no queue "
                "and no index gets it, nor others like it",
                *(found[0].commit_log_offset, found[0].topic, found[0].queue_id, MAX_PROPERTIES_BYTES),
            )
        self.count += sum(each.commit_log_offset >= self._counted_to for each in found)
        self._counted_to = max(self._counted_to, found[-1].end_offset)
        return [each for each in batch if not each.is_passed_over]
