"""Why the tables of a broker take no changes for a while."""

from __future__ import annotations

import attrs


class TableFenced(OSError):
    """The table takes no changes now: another broker may be about to become the master with this table."""


@attrs.define(eq=False, repr=False)
class TableFence:
    """The reasons for which a table takes no changes: one per holder, so that none takes away another's."""

    _reasons: dict[str, str] = attrs.field(factory=dict, init=False)

    def hold(self, by: str, reason: str) -> None:
        """Refuse changes for this holder; an empty `reason` ends that."""
        if reason:
            self._reasons[by] = reason
        else:
            self._reasons.pop(by, None)

    def check(self) -> None:
        """Raise `TableFenced` if there is a reason."""
        for reason in self._reasons.values():
            raise TableFenced(reason)
