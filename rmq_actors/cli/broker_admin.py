"""`rmq-actors broker-admin`: how a running broker is doing, and changes of its role, over its port as mqadmin does."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, TypeVar

import trio
import typer

from rmq_actors.cli.broker_exchange import exchange_roles
from rmq_actors.cli.broker_request import RequestFailed, broker_request
from rmq_actors.cli.exit_codes import ExitCode
from rmq_actors.store.config import BrokerRole
from rmq_actors.wire.address import IllegalAddress, parse_address
from rmq_actors.wire.request_code import OwnRequestCode, RequestCode, RequestCode5
from rmq_actors.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from rmq_actors.remoting.client import RemotingClient
    from rmq_actors.wire.bodies.ha_runtime_info import HARuntimeInfo

T = TypeVar("T")

#: How long a change of role, or a truncation, may take for a large store on a slow disk.
_CHANGE_TIMEOUT_MS = 60_000

broker_admin_app = typer.Typer(no_args_is_help=True)
Address = Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the broker listens: its listenPort.")]


@broker_admin_app.callback()
def _broker_admin() -> None:
    """Look at a running broker, change its role, end the halt of a slave.

    All requests but truncate, follow-again and exchange are RocketMQ's own:
    mqadmin brokerStatus, haStatus and updateBrokerConfig do the same. If the
    broker has aclEnable, set ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY to
    those of an admin account.

    Exit codes: 0 done, 1 the broker refused or does not answer, 2 bad usage.
    """


@broker_admin_app.command()
def status(address: Address) -> None:
    """Show role, log, and how replication is doing: a master's slaves, or what a slave follows.

    RocketMQ's own brokers tell less: 4.9 tells neither its role nor anything
    about replication.
    """

    async def ask(client: RemotingClient) -> tuple[Mapping[str, str], HARuntimeInfo | None]:
        from rmq_actors.wire.bodies.decoding import decode_body
        from rmq_actors.wire.bodies.ha_runtime_info import HARuntimeInfo
        from rmq_actors.wire.bodies.routes import KVTable

        info = await broker_request(client, address, RequestCode.GET_BROKER_RUNTIME_INFO)
        table = decode_body(KVTable, info.body).table
        try:
            ha = await broker_request(client, address, RequestCode5.GET_BROKER_HA_STATUS)
        except RequestFailed as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return table, None
        return table, decode_body(HARuntimeInfo, ha.body)

    info, ha = _run(address, ask)
    for line in status_lines(info, ha):
        typer.echo(line)


@broker_admin_app.command("change-role")
def change_role(
    address: Address,
    role: Annotated[BrokerRole, typer.Argument(help="The role that the broker gets.")],
    broker_id: Annotated[
        int | None, typer.Option(min=1, help="A slave's brokerId; by default the one it has, or 1.", show_default=False)
    ] = None,
    ha_master_address: Annotated[
        str | None,
        typer.Option(
            help="HA address of the master that a slave follows; by default as configured.", show_default=False
        ),
    ] = None,
    master_addr: Annotated[
        str | None,
        typer.Option(help="Where that master answers requests; by default as name servers tell.", show_default=False),
    ] = None,
    term: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="A master's term, greater than every one that it has seen; by default the next one.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make a broker a master or a slave while it runs, and write that into its file.

    Make a slave the master only when its master is down or has become a slave
    itself: nothing else prevents two masters of one name.
    """
    options = {"brokerId": broker_id, "haMasterAddress": ha_master_address, "masterAddr": master_addr}
    given = {key: str(value) for key, value in options.items() if value is not None}
    if given and role is not BrokerRole.SLAVE:
        raise typer.BadParameter(f"{', '.join(given)}: a master's brokerId is 0, and it follows nobody")

    if term is not None and role is BrokerRole.SLAVE:
        raise typer.BadParameter("term: a slave takes its master's")

    async def ask(client: RemotingClient) -> None:
        from rmq_actors.settings.properties_text import format_properties

        body = format_properties({"brokerRole": role.value, **given}).encode()
        fields = None if term is None else {"term": str(term)}
        await broker_request(client, address, RequestCode.UPDATE_BROKER_CONFIG, body, _CHANGE_TIMEOUT_MS, fields)

    _run(address, ask)
    typer.echo(f"{address}: brokerRole is {role.value} now")


@broker_admin_app.command()
def truncate(
    address: Address,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether to cut.")] = False,
) -> None:
    """Cut the log of a halted slave where it diverges from its master's, and follow again.

    Consumers lose the messages that only the slave has; the bytes are kept in
    its store, in cut/. With haTruncateOnDivergence=true a slave does it by
    itself.
    """
    if not yes:
        typer.confirm(f"Cut what {address} has and its master has not?", abort=True)

    async def ask(client: RemotingClient) -> str:
        answer = await broker_request(client, address, OwnRequestCode.TRUNCATE_LOG, b"", _CHANGE_TIMEOUT_MS)
        return answer.remark or ""

    typer.echo(f"{address}: {_run(address, ask)}")


@broker_admin_app.command()
def exchange(
    master: Annotated[str, typer.Argument(metavar="MASTER", help="HOST:PORT at which the master listens.")],
    slave: Annotated[str, typer.Argument(metavar="SLAVE", help="HOST:PORT at which the master reaches its slave.")],
    time_limit: Annotated[
        float, typer.Option(min=1, max=3600, help="How many seconds the slave may take to catch up.")
    ] = 30.0,
) -> None:
    """Exchange the roles of a master and its slave; or change nothing, and say why.

    The master refuses puts meanwhile, and producers send them again. Once the
    slave has all messages, topics, groups and offsets, it becomes the master,
    and the master becomes its slave. Both write that into their files.
    """
    _check_address(slave)
    _run(master, lambda client: exchange_roles(client, master, slave, time_limit))
    typer.echo(f"{slave} is the master now, {master} its slave")


@broker_admin_app.command("follow-again")
def follow_again(address: Address) -> None:
    """Let a halted slave ask its master again, and follow it if both logs agree.

    Nothing is cut. Use it once the cause of the halt is gone, for example when
    the master has its log back. If it is not known up to where both logs are the
    same, the slave also asks by itself, about every 45 s.
    """

    async def ask(client: RemotingClient) -> str:
        return (await broker_request(client, address, OwnRequestCode.FOLLOW_AGAIN)).remark or ""

    typer.echo(f"{address}: {_run(address, ask)}")


def status_lines(info: Mapping[str, str], ha: HARuntimeInfo | None) -> list[str]:
    """The lines of `status`. Without `ha` the broker is one of RocketMQ 4.9."""
    begin, end = info.get("commitLogMinOffset", "?"), info.get("commitLogMaxOffset", "?")
    rows = [
        ("broker", f"{info.get('brokerName', '?')}, brokerId {info.get('brokerId', '?')}"),
        ("role", info.get("brokerRole", "?")),
        ("log", f"offsets {begin} to {end}, {info.get('remainHowManyDataToFlush', '?')} not synced yet"),
        ("not dispatched", f"{info.get('dispatchBehindBytes', '?')} bytes"),
        ("disk used", f"{float(info.get('commitLogDiskRatio', 'nan')):.0%}"),
    ]
    if "putsRefused" in info:
        rows.append(("puts refused", info["putsRefused"]))
    if ha is None:
        rows.append(("replication", "not told: the broker does not know GET_BROKER_HA_STATUS"))
        return [f"{name:<15} {value}" for name, value in rows]
    client = ha.ha_client_runtime_info
    if not ha.master:
        rows += [
            ("master", f"{info.get('masterAddr') or 'not known'}, its log at {client.master_addr or 'not known'}"),
            ("received", f"{client.transferred_byte_in_second} bytes a second"),
            *([("following", info["haFollowing"])] if "haFollowing" in info else []),
            ("followed", f"{info.get('haFollowed', '?')} times; ended: {info.get('haFollowEnds') or 'never'}"),
            ("halted", info.get("haHalted") or "no"),
        ]
        if info.get("haCommonEnd"):
            rows.append(("", f"the master has the same log up to {info['haCommonEnd']}: truncate cuts there"))
        elif info.get("haHalted"):
            rows.append(("", "what the master has of this log is not known: follow-again asks it"))
    refused, ends = info.get("haRefusedConnections", "?"), info.get("haConnectionEnds") or "none"
    rows += [
        ("HA port", info.get("haListenAddress", "?")),
        ("connections", f"{info.get('haConnections', '?')} so far, {refused} refused; ended: {ends}"),
    ]
    if ha.master and "haReplicas" in info:
        rows.append(("replicas", info["haReplicas"]))
    lines = [f"{name:<15} {value}" for name, value in rows]
    if ha.master:
        lines += _slave_lines(info, ha)
    return lines


def _slave_lines(info: Mapping[str, str], ha: HARuntimeInfo) -> list[str]:
    if not ha.ha_connection_info:
        return ["no slave is connected"]
    lines = [f"{'slave':<22} {'acknowledged':>14} {'behind':>12} {'last ack':>10} {'bytes/s':>12}  in sync"]
    for slave in ha.ha_connection_info:
        told = dict(part.split("=") for part in info.get(f"haSlave_{slave.addr}", "").split(", ") if "=" in part)
        age = f"{int(told['lastAckAgeMs']) / 1000:.1f} s" if "lastAckAgeMs" in told else "never"
        lines.append(
            f"{slave.addr or '?':<22} {slave.slave_ack_offset:>14} {slave.diff:>12} {age:>10} "
            f"{slave.transferred_byte_in_second:>12}  {'yes' if slave.in_sync else 'no'}"
        )
    return lines


def _check_address(address: str) -> None:
    try:
        parse_address(address)
    except IllegalAddress as error:
        raise typer.BadParameter(str(error)) from error


def _run(address: str, ask: Callable[[RemotingClient], Awaitable[T]]) -> T:
    from rmq_actors.embedding.remoting_client import open_remoting_client
    from rmq_actors.remoting.acl import AclClientRpcHook
    from rmq_actors.wire.acl_signature import SessionCredentials

    _check_address(address)
    access_key, secret_key = os.environ.get("ROCKETMQ_ACCESS_KEY"), os.environ.get("ROCKETMQ_SECRET_KEY")
    hooks = [AclClientRpcHook(SessionCredentials(access_key, secret_key))] if access_key and secret_key else []

    async def with_client() -> T | RequestFailed:
        async with open_remoting_client(hooks=hooks) as client:
            try:
                return await ask(client)
            except RequestFailed as error:  # not raised within the nursery, which would make a group of it
                return error

    outcome = trio.run(with_client)
    if isinstance(outcome, RequestFailed):
        print(f"error: {outcome}", file=sys.stderr)
        raise typer.Exit(ExitCode.CHECK_FAILED)
    return outcome
