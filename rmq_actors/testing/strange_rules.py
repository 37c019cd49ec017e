"""All kinds of requests that strangers make: `RULES` says what is right, `draw` makes one."""

from __future__ import annotations

from collections.abc import Mapping

from rmq_actors.testing.strange_asks import ASKS
from rmq_actors.testing.strange_puts import PUTS
from rmq_actors.testing.strange_requests import Dice, Draft, Rule, StrangeRequest
from rmq_actors.testing.strange_states import STATES

_KINDS = {**PUTS, **ASKS, **STATES}
#: By kind.
RULES: Mapping[str, Rule] = {kind: rule for kind, (rule, _) in _KINDS.items()}
#: Requests that each broker answers in the step in which it reads them.
ANSWERED_AT_ONCE = ("unknown_code", "bad_field", "view", "members", "commit")
#: How often a message is a good one.
_GOOD = 0.2


def draw(rng: Dice, key: str, file_bytes: int, kind: str | None = None) -> StrangeRequest:
    """The next request of a stranger, which `key` names, of a broker whose log has files of so many bytes."""
    if kind is None:
        kind = "good" if rng.random() < _GOOD else rng.choice(tuple(_KINDS))
    return _KINDS[kind][1](Draft(rng, key, file_bytes))
