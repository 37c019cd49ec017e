"""When a consumer pulls no more of a queue for a while: it has too much of it in memory already."""

from __future__ import annotations

from typing import Literal

import attrs

_MIB = 1024 * 1024
#: How long a pull waits that flow control holds back (PULL_TIME_DELAY_MILLS_WHEN_CACHE_FLOW_CONTROL), one that a broker
#: held back (FLOW_CONTROL), and one that failed.
FLOW_CONTROL_DELAY_S = 0.05
BROKER_FLOW_CONTROL_DELAY_S = 0.02
EXCEPTION_DELAY_S = 3.0

Held = Literal["count", "size", "span"]


@attrs.frozen
class PullThresholds:
    """DefaultMQPushConsumer's thresholds. Those for the topic, if not -1, are shared by the queues that are held."""

    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue_mib: int = 100
    consume_concurrently_max_span: int = 2000
    pull_threshold_for_topic: int = -1
    pull_threshold_size_for_topic_mib: int = -1

    def shared_by(self, queues: int) -> PullThresholds:
        """The thresholds of each of that many queues."""
        if queues == 0:
            return self
        changes = {}
        if self.pull_threshold_for_topic != -1:
            changes["pull_threshold_for_queue"] = max(1, self.pull_threshold_for_topic // queues)
        if self.pull_threshold_size_for_topic_mib != -1:
            changes["pull_threshold_size_for_queue_mib"] = max(1, self.pull_threshold_size_for_topic_mib // queues)
        return attrs.evolve(self, **changes)

    def held_back(self, count: int, size_bytes: int, span: int, *, orderly: bool) -> Held | None:
        """Why the queue is not to be pulled now, None: pull. The span counts without order alone."""
        if count > self.pull_threshold_for_queue:
            return "count"
        if size_bytes // _MIB > self.pull_threshold_size_for_queue_mib:
            return "size"
        if not orderly and span > self.consume_concurrently_max_span:
            return "span"
        return None
