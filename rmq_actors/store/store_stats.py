"""What a store counts of its work, and its rates (StoreStatsService): the runtime info that operators read.

Names and layouts are 4.9's. A put or a read costs a few additions; rates come from samples, one per second.
"""

from __future__ import annotations

import bisect
import logging
from collections import deque
from collections.abc import Mapping

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.actors.services.timer import Timer
from rmq_actors.ports.wall_clock import WallClock

_log = logging.getLogger(__name__)

SAMPLING_INTERVAL_S = 1.0
_PRINT_INTERVAL_S = 60.0
#: Rates are those of the last so many seconds.
_WINDOWS = (10, 60, 600)
_SAMPLES_MAX = _WINDOWS[-1] + 2

#: The upper ends of the time distribution, in ms; the first holds 0 alone, the others do not hold their ends.
_DISTRIBUTION_ENDS_MS = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_DISTRIBUTION_NAMES = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]", "[2~3s]",
    "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip

_STEPS_MS = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))


def _bucket_ends_ms() -> tuple[int, ...]:
    """1 to 20 by 1, to 50 by 2, to 100 by 5, to 200 by 10, to 500 by 50, to 1000 by 100, to 10,000 by 1000."""
    ends, end = [], 0
    for step, times in _STEPS_MS:
        for _ in range(times):
            end += step
            ends.append(end)
    return tuple(ends)


#: The upper ends of the buckets that latencies are read from; what is longer than the last has one of its own.
_BUCKET_ENDS_MS = _bucket_ends_ms()


@attrs.define(eq=False, repr=False)
class _Counts:
    """Puts by how long they took."""

    distribution: list[int] = attrs.field(factory=lambda: [0] * len(_DISTRIBUTION_NAMES))
    buckets: list[int] = attrs.field(factory=lambda: [0] * (len(_BUCKET_ENDS_MS) + 1))

    def describe(self) -> str:
        """The distribution as 4.9 prints it."""
        return "".join(f"{name}:{count} " for name, count in zip(_DISTRIBUTION_NAMES, self.distribution, strict=True))

    def latency_ms(self, part: float) -> float:
        """How long the quickest `part` of the puts took at most; between a bucket's ends in proportion."""
        total = sum(self.buckets)
        rank, passed, begin_ms = int(total * part), 0, 0
        for end_ms, count in zip((*_BUCKET_ENDS_MS, 2 * _BUCKET_ENDS_MS[-1]), self.buckets, strict=True):
            if rank <= passed + count:
                return begin_ms + ((end_ms - begin_ms) * (rank - passed) / count if count else 0)
            passed += count
            begin_ms = end_ms
        return float(begin_ms)


@attrs.frozen
class _Sample:
    """The counters at a time, in seconds of Trio's clock."""

    at_s: float
    puts: int
    gets_found: int
    gets_missed: int
    transferred: int


@attrs.define(eq=False, repr=False)
class StoreStatsService(ServiceThread):
    """The counters, written by the services that do the work, and the service that samples them."""

    name = "StoreStatsService"
    _wall_clock: WallClock
    _timer: Timer = attrs.field(repr=False)
    boot_timestamp_ms: int = attrs.field(init=False)
    put_message_topic_times_total: dict[str, int] = attrs.field(factory=dict, init=False)
    put_message_topic_size_total: dict[str, int] = attrs.field(factory=dict, init=False)
    put_message_failed_times: int = attrs.field(default=0, init=False)
    put_message_entire_time_max_ms: int = attrs.field(default=0, init=False)
    get_message_times_total_found: int = attrs.field(default=0, init=False)
    get_message_times_total_miss: int = attrs.field(default=0, init=False)
    get_message_transferred_msg_count: int = attrs.field(default=0, init=False)
    get_message_entire_time_max_ms: int = attrs.field(default=0, init=False)
    #: How many records a dispatch had before it at most.
    dispatch_max_buffer: int = attrs.field(default=0, init=False)
    _counts: _Counts = attrs.field(factory=_Counts, init=False)
    #: Those of the last full minute.
    _last_counts: _Counts = attrs.field(factory=_Counts, init=False)
    _samples: deque[_Sample] = attrs.field(factory=lambda: deque(maxlen=_SAMPLES_MAX), init=False)

    def __attrs_post_init__(self) -> None:
        self.boot_timestamp_ms = self._wall_clock.now_ms()

    # For those who work.

    def put(self, topic: str, size_bytes: int, messages: int = 1) -> None:
        """A put was appended: so many messages, so many bytes in all."""
        times, sizes = self.put_message_topic_times_total, self.put_message_topic_size_total
        times[topic] = times.get(topic, 0) + messages
        sizes[topic] = sizes.get(topic, 0) + size_bytes

    def put_took(self, elapsed_ms: float) -> None:
        """A put was answered, well or not, after so long."""
        self.puts_took(elapsed_ms, 1)

    def puts_took(self, elapsed_ms: float, count: int) -> None:
        """So many puts were answered together."""
        whole_ms = int(elapsed_ms)
        counts = self._counts
        counts.distribution[bisect.bisect_right(_DISTRIBUTION_ENDS_MS, whole_ms) if whole_ms > 0 else 0] += count
        counts.buckets[bisect.bisect_left(_BUCKET_ENDS_MS, whole_ms)] += count
        self.put_message_entire_time_max_ms = max(self.put_message_entire_time_max_ms, whole_ms)

    def put_failed(self) -> None:
        """A put was refused or went wrong."""
        self.put_message_failed_times += 1

    def got(self, messages: int, elapsed_ms: float) -> None:
        """A read has ended with so many messages, after so long."""
        if messages:
            self.get_message_times_total_found += 1
            self.get_message_transferred_msg_count += messages
        else:
            self.get_message_times_total_miss += 1
        if elapsed_ms > self.get_message_entire_time_max_ms:
            self.get_message_entire_time_max_ms = int(elapsed_ms)

    # The service.

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Sample each second, and log the rates each minute."""
        sampling = self._timer.every(SAMPLING_INTERVAL_S, lambda: self.sample(trio.current_time()), self)
        with sampling, self._timer.every(_PRINT_INTERVAL_S, self.begin_minute, self):
            task_status.started()
            await trio.sleep_forever()

    def sample(self, now_s: float) -> None:
        """Remember the counters as they are at `now_s`."""
        self._samples.append(
            _Sample(
                now_s,
                self.put_message_times_total,
                self.get_message_times_total_found,
                self.get_message_times_total_miss,
                self.get_message_transferred_msg_count,
            )
        )

    def begin_minute(self) -> None:
        """Log the rates; the time distribution that is shown becomes that of the minute that has ended."""
        self._last_counts, self._counts = self._counts, _Counts()
        rates = [self._rate(counter, 60) for counter in ("puts", "gets_found", "gets_missed", "transferred")]
        if all(rates):  # 4.9 prints a line without numbers before there are enough samples
            _log.info("[STORETPS] put_tps %s get_found_tps %s get_miss_tps %s get_transfered_tps %s", *rates)
        _log.info(
            "[PAGECACHERT] TotalPut %d, PutMessageDistributeTime %s",
            sum(self._last_counts.distribution),
            self._last_counts.describe(),
        )

    # For those who read.

    @property
    def put_message_times_total(self) -> int:
        """How many messages were put since the start."""
        return sum(self.put_message_topic_times_total.values())

    @property
    def put_message_size_total(self) -> int:
        """How many bytes of the log they are."""
        return sum(self.put_message_topic_size_total.values())

    def runtime_info(self) -> Mapping[str, str]:
        """By 4.9's names (getRuntimeInfo). Rates are of the last 10, 60 and 600 s; empty before there are samples."""
        times, size = max(1, self.put_message_times_total), self.put_message_size_total
        return {
            "bootTimestamp": str(self.boot_timestamp_ms),
            "runtime": self._format_runtime(),
            "putMessageEntireTimeMax": str(self.put_message_entire_time_max_ms),
            "putMessageTimesTotal": str(times),
            "putMessageFailedTimes": str(self.put_message_failed_times),
            "putMessageSizeTotal": str(size),
            "putMessageDistributeTime": self._last_counts.describe(),
            "putMessageAverageSize": str(size / times),
            "dispatchMaxBuffer": str(self.dispatch_max_buffer),
            "getMessageEntireTimeMax": str(self.get_message_entire_time_max_ms),
            "putTps": self._rates("puts"),
            "getFoundTps": self._rates("gets_found"),
            "getMissTps": self._rates("gets_missed"),
            "getTotalTps": self._rates("gets_found", "gets_missed"),
            "getTransferedTps": self._rates("transferred"),
            "putLatency99": f"{self._last_counts.latency_ms(0.99):.2f}",
            "putLatency999": f"{self._last_counts.latency_ms(0.999):.2f}",
        }

    def _rates(self, *counters: str) -> str:
        # The sum of two rates is 0.0 where one of them is empty.
        texts = []
        for window in _WINDOWS:
            rates = [self._rate(counter, window) for counter in counters]
            texts.append(rates[0] if len(rates) == 1 else str(sum(float(rate or 0) for rate in rates)))
        return " ".join(texts)

    def _rate(self, counter: str, samples: int) -> str:
        """A second, between the last sample and the one so many before it; empty while there are too few."""
        if len(self._samples) <= samples:
            return ""
        begin, end = self._samples[-samples - 1], self._samples[-1]
        count: int = getattr(end, counter) - getattr(begin, counter)
        return str(count / (end.at_s - begin.at_s))

    def _format_runtime(self) -> str:
        seconds = max(0, self._wall_clock.now_ms() - self.boot_timestamp_ms) // 1000
        return (
            f"[ {seconds // 86_400:,} days, {seconds // 3600 % 24} hours, "
            f"{seconds // 60 % 60} minutes, {seconds % 60} seconds ]"
        )
