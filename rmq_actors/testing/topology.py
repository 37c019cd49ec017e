"""The brokers of a run: their names, and which is the master at first; and the machines of clients."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from rmq_actors.settings.field_types import shown
from sim_net.net.names import lookup_name

#: The machines of clients, in runs whose messages go through clients.
PRODUCERS, CONSUMERS = "producers", "consumers"
#: In runs of consumer groups there are two machines of consumers.
OTHER_CONSUMERS = "consumers-2"
#: The machine of the name server, in runs that have one.
NAME_SERVER = "namesrv"
#: The machine of the broker of another brokerName, in runs that have one.
NEIGHBOUR = "elsewhere"
#: The machines of name servers, in runs where these alone tell slaves who is their master.
NAME_SERVERS = ("names-1", "names-2", "names-3")
#: The one of them that goes by RocketMQ's rules.
ROCKETMQ_NAME_SERVER = "names-2"


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(names)


@attrs.frozen
class Topology:
    """A master and its slaves, by any names that machines can have.

    Raises ValueError unless there is a slave, and each name is another.
    """

    master: str
    slaves: tuple[str, ...] = attrs.field(converter=_names)

    def __attrs_post_init__(self) -> None:
        if not self.slaves:
            raise ValueError(f"{self.master} has no slave")
        for name in self.names:
            if not isinstance(name, str):
                raise TypeError(f"a broker's name must be text, not {shown(name)}")
        if not all(self.names) or len(set(self.names)) < len(self.names):
            raise ValueError(f"each broker needs a name of its own: {', '.join(self.names)}")
        for name in self.names:
            lookup_name(name)

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, the first master first."""
        return self.master, *self.slaves

    @property
    def follows(self) -> dict[str, str | None]:
        """Which broker each follows, in the form that a `Cluster` takes."""
        return {self.master: None, **dict.fromkeys(self.slaves, self.master)}
