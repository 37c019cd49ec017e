"""`rmq-actors broker-admin`: how a running broker is doing, and changes of its role, over its port as mqadmin does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rmq_actors.cli.broker_exchange import exchange_roles
from rmq_actors.cli.broker_request import broker_request, check_address, run_request
from rmq_actors.cli.broker_status import ask_status
from rmq_actors.cli.reports import Interval, Report, show_reports
from rmq_actors.store.config import BrokerRole
from rmq_actors.wire.request_code import OwnRequestCode, RequestCode

if TYPE_CHECKING:
    from rmq_actors.remoting.client import RemotingClient

#: How long a change of role, or a truncation, may take for a large store on a slow disk.
_CHANGE_TIMEOUT_MS = 60_000

broker_admin_app = typer.Typer(add_completion=False, no_args_is_help=True)
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
def status(
    address: Address,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one object of JSON; with --watch one per line and question.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Ask again and again, until Ctrl-C (exit code 130).")] = False,
    interval_s: Interval = 2.0,
) -> None:
    """Show role, log, and how replication is doing: a master's slaves, or what a slave follows.

    A slave that does not follow its master now says since when, and why: the
    row `following`, which begins with a word that docs/operating.md explains.

    With --watch a broker that does not answer is shown as such, and asked
    again. With --json `runtimeInfo` has what the broker answers to
    GET_BROKER_RUNTIME_INFO (all of it text, as mqadmin brokerStatus has it),
    `haStatus` what it answers to GET_BROKER_HA_STATUS, or null.

    RocketMQ's own brokers tell less: 4.9 tells neither its role nor anything
    about replication.
    """

    async def ask(client: RemotingClient) -> Report:
        told = await ask_status(client, address)
        return Report(told.lines, told.as_json)

    show_reports(address, ask, as_json=as_json, interval_s=interval_s if watch else None)


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

    run_request(address, ask)
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

    typer.echo(f"{address}: {run_request(address, ask)}")


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
    check_address(slave)
    run_request(master, lambda client: exchange_roles(client, master, slave, time_limit))
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

    typer.echo(f"{address}: {run_request(address, ask)}")
