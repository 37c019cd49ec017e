"""What the log of a broker says of puts that fail: a full disk fails hundreds a second."""

from __future__ import annotations

import logging

import attrs

from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY, file_name

_log = logging.getLogger(__name__)

_WARNING_INTERVAL_S = 10.0


@attrs.define(eq=False, repr=False)
class FailedPuts:
    """Warns when puts begin to fail, then at most once in 10 s, and tells when they work again."""

    #: Whether the last put that was tried has failed.
    fail: bool = attrs.field(default=False, init=False)
    _untold: int = attrs.field(default=0, init=False)
    #: Whether the last line said that they fail.
    _told: bool = attrs.field(default=False, init=False)
    _told_at_s: float = attrs.field(default=float("-inf"), init=False)

    def failed(self, error: OSError, offset: int, file_size_bytes: int, now_s: float) -> None:
        """A put has failed, the log being at `offset`."""
        self.fail = True
        self._untold += 1
        since_s = now_s - self._told_at_s
        if since_s < _WARNING_INTERVAL_S:
            return
        path = f"{COMMIT_LOG_DIRECTORY}/{file_name(offset - offset % file_size_bytes)}"
        if self._told:
            _log.warning("%d puts have failed in %.0f s: %s: %s", self._untold, since_s, path, error)
        else:
            _log.warning("puts fail, the log cannot be written at offset %d: %s: %s", offset, path, error)
        self._untold, self._told, self._told_at_s = 0, True, now_s

    def succeeded(self) -> None:
        """A put was appended while `fail` was set."""
        self.fail = False
        if self._told:  # else both would be said of every second put, if short ones fit and long ones do not
            self._told = False
            _log.info("puts work again: %d more have failed since the last warning", self._untold)
            self._untold = 0
