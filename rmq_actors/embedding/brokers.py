"""What both kinds of clusters share, once they can start a broker and run something within its process."""

from __future__ import annotations

import contextlib
import functools
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.role_exchange import ExchangeRefused
from rmq_actors.client.config import ClientConfig
from rmq_actors.embedding.cluster_clients import ClusterClients
from rmq_actors.embedding.cluster_protocol import BrokerDown, BrokerStatus, ExchangeFailed
from rmq_actors.ha.config import HaConfig
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.settings.argument_checks import checked
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.puts.message_puts import PutResult
from rmq_actors.wire.record import BLANK, MESSAGE_MAGIC, Message, StoredMessage, decode_message

T = TypeVar("T")

_LOOK_EVERY_S = 0.01
#: After an exchange's limit the slave opens its store again, then the master does.
_LONGER_S = 60.0


@attrs.frozen
class Addresses:
    """Where others reach a broker, as "host:port": for requests, and for its log."""

    remoting: str
    ha: str


def check_topology(follows: Mapping[str, str | None]) -> dict[str, str | None]:
    """A copy of `follows`: each broker's name, and which one it follows, None for a master. Raises `ValueError`."""
    for name, master in follows.items():
        if not name or "/" in name or name.startswith("."):
            raise ValueError(f"{name!r} cannot be a broker's name: it must be a directory's name, too")
        if master is not None and master not in follows:
            raise ValueError(f"{name} follows {master!r}, which is no broker of this cluster")
        _root(name, follows)
    if not follows:
        raise ValueError("a cluster has one broker or more")
    return dict(follows)


def _root(name: str, follows: Mapping[str, str | None]) -> str:
    """The master whose log a broker has, over the slaves between the two."""
    seen, at = [name], name
    while (master := follows[at]) is not None:
        if master in seen:
            raise ValueError(f"{' follows '.join([*seen, master])}: one of them must be a master")
        seen.append(master)
        at = master
    return at


def _letters(number: int) -> str:
    """The letters of a number: a to z, then aa, ab and so on."""
    before, last = divmod(number, 26)
    return (_letters(before - 1) if before else "") + chr(ord("a") + last)


def masters_first(follows: Mapping[str, str | None]) -> list[str]:
    """The brokers' names in an order in which each can be started: a master comes before its slaves."""

    def steps(name: str) -> int:
        master = follows[name]
        return 0 if master is None else 1 + steps(master)

    return sorted(follows, key=steps)


def messages_of(log: CommitLog) -> Iterator[StoredMessage]:
    """Every message of a log, in its order, without blanks."""
    for view in log.ranges(log.min_offset, log.max_offset):
        position = 0
        while position < len(view):
            size, magic = BLANK.unpack_from(view, position)
            if magic == MESSAGE_MAGIC:
                yield decode_message(view[position : position + size])
            position += size


@contextlib.contextmanager
def _in_time(timeout_s: float, lacking: Callable[[], Iterable[str]]) -> Iterator[None]:
    """Raise `trio.TooSlowError` with what is `lacking` if the block takes longer."""
    with trio.move_on_after(timeout_s) as scope:
        yield
    if scope.cancelled_caught:
        raise trio.TooSlowError(f"after {timeout_s:g} s: {'; '.join(lacking()) or 'not all is done'}")


@attrs.define(eq=False, repr=False)
class Brokers(ClusterClients):
    """The brokers of a cluster: see `cluster_protocol.Cluster` for what is public.

    A group is a master and all brokers that follow it. They share a brokerName: broker-a, broker-b and so on.
    """

    _follows: dict[str, str | None]
    _store: MessageStoreConfig
    _ha: HaConfig
    _namesrv_addr: str | None = attrs.field(default=None, init=False)
    _brokers: dict[str, BrokerController] = attrs.field(factory=dict, init=False)
    #: The brokerName of each.
    _groups: dict[str, str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        masters = [name for name, master in self._follows.items() if master is None]
        names = {name: f"broker-{_letters(number)}" for number, name in enumerate(masters)}
        self._groups = {name: names[_root(name, self._follows)] for name in self._follows}

    def __repr__(self) -> str:
        follows = ", ".join(f"{name}: {master or 'master'}" for name, master in self._follows.items())
        return f"<{type(self).__name__} {follows}; running: {', '.join(self.running) or 'none'}>"

    # --- what the two kinds differ in -------------------------------------------------------------------------------

    @abstractmethod
    async def start(self, name: str) -> None:
        """See `Cluster.start`."""

    @abstractmethod
    async def kill(self, name: str) -> None:
        """See `Cluster.kill`."""

    @abstractmethod
    def _addresses(self, name: str) -> Addresses:
        """Where a broker that runs, or has run, is reached."""

    @abstractmethod
    def _listens(self, name: str) -> tuple[str, int, int]:
        """Where a broker must listen: host, port for requests, HA port."""

    @abstractmethod
    def _start_within(self, name: str, task: Callable[[], Awaitable[None]]) -> None:
        """Start a task in the process of a running broker; it ends with the process."""

    def _client_config(self, config: ClientConfig | None, client_ip: str) -> ClientConfig:
        if self._namesrv_addr is None:
            raise ValueError("clients ask a name server, and this cluster has none: give it name_server=True")
        if config is None:
            return ClientConfig(self._namesrv_addr, client_ip)
        return attrs.evolve(config, namesrv_addr=self._namesrv_addr, client_ip=client_ip)

    def use_name_servers(self, addresses: str | None) -> None:
        """From the next start on brokers register at "host:port;host:port", and slaves ask there for their master."""
        self._namesrv_addr = addresses

    # --- what it tells ----------------------------------------------------------------------------------------------

    @property
    def follows(self) -> Mapping[str, str | None]:
        """See `Cluster.follows`."""
        return dict(self._follows)

    @property
    def running(self) -> Sequence[str]:
        """See `Cluster.running`."""
        return [name for name in self._follows if name in self._brokers]

    def broker(self, name: str) -> BrokerController:
        """A running broker itself. Raises `BrokerDown`, and `ValueError` if there is none of that name."""
        if name not in self._follows:
            raise ValueError(f"no broker {name!r}: there are {', '.join(self._follows)}")
        try:
            return self._brokers[name]
        except KeyError:
            raise BrokerDown(f"broker {name} is not running") from None

    def messages(self, name: str) -> list[StoredMessage]:
        """See `Cluster.messages`."""
        return list(messages_of(self.broker(name).store.commit_log))

    def status(self, name: str) -> BrokerStatus:
        """See `Cluster.status`."""
        broker = self.broker(name)
        log, followed = broker.store.commit_log, broker.followed_master
        halted = None if followed is None else followed.halted
        return BrokerStatus(
            role=broker.config.store.broker_role,
            term=broker.term.number,
            min_offset=log.min_offset,
            max_offset=log.max_offset,
            flushed_offset=log.flushed_where,
            slaves=len(broker.ha_service.connections),
            is_following=followed is not None and followed.is_followed,
            halted=None if halted is None else halted.reason,
        )

    # --- what it does -----------------------------------------------------------------------------------------------

    async def restart(self, name: str) -> None:
        """See `Cluster.restart`."""
        if name in self._brokers:
            await self.kill(name)
        await self.start(name)

    @checked
    async def put(self, message: Message, *, to: str | None = None) -> PutResult:
        """See `Cluster.put`."""
        return await self._call(to or self._only_master(), lambda broker: broker.put_message(message))

    async def promote(self, name: str) -> None:
        """See `Cluster.promote`."""
        self.broker(name)
        old = _root(name, self._follows)
        if old == name:
            raise ValueError(f"{name} is the master already")
        self._put_in_front(name, [each for each, group in self._groups.items() if group == self._groups[name]])
        # The old master first: two leading brokers would both take puts.
        for each in sorted(self._of_group(name), key=lambda other: (other != old, other != name)):
            if each in self._brokers:
                await self._take_role(each)

    async def exchange(self, name: str, *, limit_s: float = 30.0) -> None:
        """See `Cluster.exchange`."""
        old = self._follows.get(name)
        if old is None or self._follows[old] is not None:
            raise ValueError(f"{name} is no slave of a master")
        await self._call(old, lambda broker: exchange_roles(broker, self._addresses(name).remoting, limit_s))
        others = [each for each in self._of_group(name) if self._follows[each] == old and each != name]
        self._put_in_front(name, [old, *others])
        for each in others:
            if each in self._brokers:
                await self._take_role(each)

    async def wait_until_connected(self, timeout_s: float = 30.0) -> None:
        """See `Cluster.wait_until_connected`."""
        with _in_time(timeout_s, self._not_connected):
            await self._look(
                lambda: all(self._follows[name] is None or self.status(name).is_following for name in self.running)
            )
            for name in self.running:
                if self._follows[name] is None:
                    await self._call(name, functools.partial(_serves, self._running_slaves(name)))

    async def wait_until_replicated(self, timeout_s: float = 30.0) -> None:
        """See `Cluster.wait_until_replicated`."""
        ends = {name: self.status(name).max_offset for name in self.running if self._follows[name] is None}
        roots = {name: _root(name, self._follows) for name in self.running}

        def lacking() -> list[str]:
            return [
                f"{name} has {self.status(name).max_offset} of {ends.get(root, 0)} bytes of {root}"
                for name, root in roots.items()
                if name in self._brokers and self.status(name).max_offset < ends.get(root, 0)
            ]

        with _in_time(timeout_s, lacking):
            await self._look(lambda: not lacking())

    async def wait_until_registered(self, timeout_s: float = 30.0) -> None:
        """Return when the name server has every broker. Raises `trio.TooSlowError`."""
        with _in_time(timeout_s, lambda: ["the name server has not all brokers"]):
            for broker in list(self._brokers.values()):
                if broker.remoting is not None and broker.remoting.registration is not None:
                    await broker.remoting.registration.wait_until_registered()

    def _not_connected(self) -> Iterator[str]:
        for name in self.running:
            status, master = self.status(name), self._follows[name]
            if master is None and status.slaves < self._running_slaves(name):
                yield f"{name} has {status.slaves} of {self._running_slaves(name)} slaves"
            elif master is not None and not status.is_following:
                halted = "" if status.halted is None else f": it has halted: {status.halted}"
                yield f"{name} does not follow {master}{halted}"

    def _running_slaves(self, master: str) -> int:
        return sum(self._follows[name] == master for name in self.running)

    # --- for both ---------------------------------------------------------------------------------------------------

    async def _look(self, predicate: Callable[[], bool]) -> None:
        while not predicate():  # noqa: ASYNC110 - what it looks at has many causes
            await trio.sleep(_LOOK_EVERY_S)

    async def _call(self, name: str, call: Callable[[BrokerController], Awaitable[T]]) -> T:
        """Run `call` in the broker's process; what it returns or raises. It goes on if the caller is cancelled."""
        broker, over = self.broker(name), trio.Event()
        results: list[T] = []
        errors: list[Exception] = []

        async def run() -> None:
            try:
                results.append(await call(broker))
            except Exception as error:  # noqa: BLE001 - it is the caller's: in a node it would end the process
                errors.append(error)
            finally:
                over.set()

        self._start_within(name, run)
        await over.wait()
        if errors:
            raise errors[0]
        if not results:
            raise BrokerDown(f"broker {name} died before it answered")
        return results[0]

    async def _take_role(self, name: str) -> None:
        """Give a running broker the role that it is configured to have."""
        config = self._config(name)

        async def change(broker: BrokerController) -> None:
            await broker.change_role(
                config.store.broker_role,
                broker_id=config.broker_id,
                ha_master_address=config.ha.ha_master_address,
                master_addr=config.master_addr,
            )

        await self._call(name, change)

    def _put_in_front(self, name: str, others: Sequence[str]) -> None:
        self._follows[name] = None
        self._follows.update(dict.fromkeys((each for each in others if each != name), name))

    def _of_group(self, name: str) -> list[str]:
        return [each for each, group in self._groups.items() if group == self._groups[name]]

    def _only_master(self) -> str:
        masters = [name for name, master in self._follows.items() if master is None]
        if len(masters) > 1:
            raise ValueError(f"there are several masters, {', '.join(masters)}: name one of them")
        return masters[0]

    def _settings(self, _: str) -> tuple[MessageStoreConfig, HaConfig]:
        """A broker's settings as a master, without addresses; by default all brokers have the same."""
        return self._store, self._ha

    def _config(self, name: str) -> BrokerConfig:
        """A broker's configuration for its present place in the cluster."""
        told, group = self._told_master(name), self._of_group(name)
        host, port, _ = self._listens(name)
        store, ha = self._settings_in_place(name)
        return BrokerConfig(
            self._groups[name],
            store,
            ha,
            remoting=RemotingServerConfig(host, port),
            # The place among the group's brokers; the first one's, as a slave, is the last.
            broker_id=0 if self._follows[name] is None else group.index(name) or len(group),
            namesrv_addr=self._namesrv_addr,
            master_addr=None if told is None else told.remoting,
        )

    def _settings_in_place(self, name: str) -> tuple[MessageStoreConfig, HaConfig]:
        """A broker's settings with its role and its addresses."""
        told = self._told_master(name)
        host, _, ha_port = self._listens(name)
        store, ha = self._settings(name)
        if self._follows[name] is not None:
            store = attrs.evolve(store, broker_role=BrokerRole.SLAVE)
        return store, attrs.evolve(
            ha,
            ha_listen_host=host,
            ha_listen_port=ha_port,
            ha_master_address=None if told is None else told.ha,
        )

    def _told_master(self, name: str) -> Addresses | None:
        """Where a slave is told that its master is; if there are name servers, they tell it."""
        master = self._follows[name]
        return None if master is None or self._namesrv_addr is not None else self._addresses(master)


async def _serves(slaves: int, broker: BrokerController) -> None:
    await broker.store.wait_for_slaves(slaves)


async def exchange_roles(broker: BrokerController, slave_addr: str, limit_s: float) -> None:
    """Exchange roles as `broker-admin exchange` does; return when it is done. Raises `ExchangeFailed`."""
    exchange = broker.exchange
    assert exchange is not None
    try:
        exchange.begin(slave_addr, limit_s)
    except ExchangeRefused as error:
        raise ExchangeFailed(str(error)) from error
    with trio.move_on_after(limit_s + _LONGER_S):
        await exchange.wait_for_end()
    info = exchange.info()
    if not info.exchanged:
        raise ExchangeFailed(info.detail if info.ended else f"not over yet, step {info.step}: {info.detail}")
