"""`rmq-actors top`: what a running broker does now, as `top` shows it of a machine.

It asks four requests, of which three are RocketMQ's, so it also shows RocketMQ's own brokers, without their actors:

    GET_BROKER_RUNTIME_INFO (28), GET_BROKER_HA_STATUS (907)   log, rates, slaves
    GET_BROKER_CONSUME_STATS (317)                             how far consumers are behind
    GET_BROKER_CENSUS (30009)                                  actors, mailboxes, connections
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer

from rmq_actors.cli.broker_request import RequestFailed, broker_request
from rmq_actors.cli.broker_status import ToldStatus, ask_status, replication_lines
from rmq_actors.cli.reports import Interval, Report, show_reports
from rmq_actors.wire.request_code import OwnRequestCode, RequestCode
from rmq_actors.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from rmq_actors.remoting.client import RemotingClient
    from rmq_actors.wire.bodies.broker_census import ActorInfo, BrokerCensus
    from rmq_actors.wire.bodies.offsets import ConsumeStatsList

#: A path of the actors' tree is cut there; a group's name and a topic's may have 255 characters.
_NAME_WIDTH = 40


@attrs.frozen
class GroupProgress:
    """How far a group is behind in a topic, over all queues of this broker; `tps`: what it got a second."""

    group: str
    topic: str
    behind: int
    tps: float


@attrs.frozen
class ToldTop:
    """What a broker has answered. `census`: None from one of RocketMQ's own brokers."""

    status: ToldStatus
    groups: list[GroupProgress]
    census: BrokerCensus | None

    @property
    def rates(self) -> dict[str, float | None]:
        """Messages a second, over the last 10 s; None in a broker's first seconds."""
        names = {"put": "putTps", "got": "getTransferedTps"}
        return {name: _rate_10_s(self.status.info.get(key, "")) for name, key in names.items()}

    @property
    def as_json(self) -> dict[str, Any]:
        """For scripts, all groups and actors included."""
        import msgspec

        census = None if self.census is None else msgspec.to_builtins(self.census)
        groups = [attrs.asdict(each) for each in self.groups]
        return {**self.status.as_json, "rates": self.rates, "groups": groups, "census": census}


def top(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the broker listens: its listenPort.")],
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with all groups and actors; without --once one line each time.")
    ] = False,
    interval_s: Interval = 2.0,
    rows: Annotated[
        int, typer.Option("--rows", min=1, max=10_000, help="How many groups, and how many actors, are shown.")
    ] = 12,
) -> None:
    """Show what a broker does now: rates, slaves, consumers, actors; again and again, until Ctrl-C (exit code 130).

    The rates are of the last 10 s. Groups stand first that are the furthest
    behind, in messages of a topic; actors with the fullest mailboxes first, then
    those that were restarted, then those that have a mailbox. A broker that does not answer is shown as such,
    and asked again.

    RocketMQ's own brokers tell nothing of actors and connections. If the
    broker has aclEnable, set ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY.

    Exit codes: 0 done (--once), 1 the broker refused or does not answer
    (--once), 2 bad usage, 130 Ctrl-C.
    """

    async def ask(client: RemotingClient) -> Report:
        told = await _ask_top(client, address)
        return Report(top_lines(told, rows), told.as_json)

    show_reports(address, ask, as_json=as_json, interval_s=None if once else interval_s)


async def _ask_top(client: RemotingClient, address: str) -> ToldTop:
    from rmq_actors.wire.bodies.broker_census import BrokerCensus
    from rmq_actors.wire.bodies.decoding import decode_body
    from rmq_actors.wire.bodies.offsets import ConsumeStatsList
    from rmq_actors.wire.headers import encode_header
    from rmq_actors.wire.headers.clients import GetConsumeStatsInBrokerHeader

    status = await ask_status(client, address)
    fields = dict(encode_header(GetConsumeStatsInBrokerHeader(is_order=False)))
    answer = await broker_request(client, address, RequestCode.GET_BROKER_CONSUME_STATS, ext_fields=fields)
    groups = group_progress(decode_body(ConsumeStatsList, answer.body))
    try:
        census = await broker_request(client, address, OwnRequestCode.GET_BROKER_CENSUS)
    except RequestFailed as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        return ToldTop(status, groups, None)
    return ToldTop(status, groups, decode_body(BrokerCensus, census.body))


def group_progress(told: ConsumeStatsList) -> list[GroupProgress]:
    """One row per group and topic, those that are the furthest behind first."""
    found = []
    for groups in told.consume_stats_list:
        for group, of_topics in groups.items():
            for stats in of_topics:
                table = stats.offset_table
                behind = sum(each.broker_offset - each.consumer_offset for each in table.values())
                topic = next((queue.topic or "?" for queue in table), "?")
                found.append(GroupProgress(group, topic, behind, stats.consume_tps))
    return sorted(found, key=lambda each: (-each.behind, each.group, each.topic))


def top_lines(told: ToldTop, rows: int) -> list[str]:
    """The view, with at most so many groups and so many actors."""
    info, rates = told.status.info, told.rates
    begin, end = info.get("commitLogMinOffset", "?"), info.get("commitLogMaxOffset", "?")
    head = (
        f"{info.get('brokerName', told.status.address)}, brokerId {info.get('brokerId', '?')}, "
        f"{info.get('brokerRole', 'role not told')}; log {begin} to {end}; "
        f"disk used {float(info.get('commitLogDiskRatio', 'nan')):.0%}; runs {info.get('runtime', '?').strip('[] ')}"
    )
    return [
        head,
        f"put {_rate(rates['put'])}, got {_rate(rates['got'])} messages a second{_clients(told.census)}",
        *([f"puts refused: {info['putsRefused']}"] if "putsRefused" in info else []),
        "",
        *replication_lines(info, told.status.ha),
        "",
        *_group_lines(told.groups, rows),
        "",
        *_actor_lines(told.census, rows),
    ]


def _clients(census: BrokerCensus | None) -> str:
    if census is None:
        return ""
    return (
        f"; {census.connections} connections, {census.producers} producers, {census.consumers} consumers, "
        f"{census.held_pulls} pulls held"
    )


def _group_lines(groups: list[GroupProgress], rows: int) -> list[str]:
    if not groups:
        return ["no group has consumed anything"]
    lines = [f"{'group':<{_NAME_WIDTH}} {'topic':<{_NAME_WIDTH}} {'behind':>12} {'got/s':>10}"]
    lines += [
        f"{_cut(each.group):<{_NAME_WIDTH}} {_cut(each.topic):<{_NAME_WIDTH}} {each.behind:>12} {each.tps:>10.1f}"
        for each in groups[:rows]
    ]
    return [*lines, *_more(len(groups) - rows, "groups and topics")]


def _actor_lines(census: BrokerCensus | None, rows: int) -> list[str]:
    if census is None:
        return ["actors are not told: the broker does not know GET_BROKER_CENSUS"]
    lines = [
        f"{'actor':<{_NAME_WIDTH}} {'kind':<12} {'state':<12} {'restarts':>8} {'mailbox':>15} {'senders wait':>13}"
    ]
    lines += [_actor_line(each) for each in _busiest_first(census.actors)[:rows]]
    if census.dead_letters:
        lines.append(f"{census.dead_letters} dead letters")
    return [*lines, *_more(len(census.actors) - rows, "actors")]


def _busiest_first(actors: Iterable[ActorInfo]) -> list[ActorInfo]:
    # The sort is stable: the rest stays in the order of their start.
    return sorted(actors, key=lambda each: (-each.waiting_senders, -each.mailbox, -each.restarts, not each.mailbox_max))


def _actor_line(actor: ActorInfo) -> str:
    mailbox = f"{actor.mailbox}/{actor.mailbox_max}" if actor.mailbox_max else ""
    waiting = str(actor.waiting_senders) if actor.waiting_senders else ""
    return (
        f"{_cut(actor.path or '?'):<{_NAME_WIDTH}} {actor.kind or '?':<12} {actor.state or '?':<12} "
        f"{actor.restarts:>8} {mailbox:>15} {waiting:>13}"
    ).rstrip()


def _more(count: int, what: str) -> list[str]:
    return [f"... and {count} more {what}"] if count > 0 else []


def _cut(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 3]}..."


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1f}"


def _rate_10_s(told: str) -> float | None:
    """The first of "10 s, 60 s, 600 s", which is empty in the first 10 s."""
    try:
        return float(told.split(" ", maxsplit=1)[0])
    except ValueError:
        return None
