"""The actor runtime: actors and services with a lifetime, a bounded mailbox and a supervisor, in Trio.

An actor handles typed messages one at a time; a service is a loop of its own. Both live in an actor system, a nursery
with a name, below supervisors that make them anew when they fail. docs/runtime-semantics.md numbers what is guaranteed.
Between the services of the broker go values on the channels that `channels` declares; nobody reads another's fields.
"""

from rmq_actors.actors.census import Census
from rmq_actors.actors.messages.actor import Actor, Context
from rmq_actors.actors.messages.cell import (
    ActorDied,
    ActorStopped,
    AskCycle,
    AskFailed,
    AskTimeout,
    HandlerFailed,
    NotAnswered,
    Terminated,
)
from rmq_actors.actors.messages.dead_letters import DeadLetter, DeadLetters
from rmq_actors.actors.messages.mailbox import MailboxFull, MailboxLimits
from rmq_actors.actors.messages.ref import ActorRef, ReplyTo, Request
from rmq_actors.actors.messages.timers import Timer, Timers
from rmq_actors.actors.restart import ESCALATE, Restart
from rmq_actors.actors.services.service import Service, WakeUp
from rmq_actors.actors.services.supervisor import ActorEnded, NotSupervising, Supervisor
from rmq_actors.actors.system import ActorSystem, open_actor_system

__all__ = [
    "ESCALATE",
    "Actor",
    "ActorDied",
    "ActorEnded",
    "ActorRef",
    "ActorStopped",
    "ActorSystem",
    "AskCycle",
    "AskFailed",
    "AskTimeout",
    "Census",
    "Context",
    "DeadLetter",
    "DeadLetters",
    "HandlerFailed",
    "MailboxFull",
    "MailboxLimits",
    "NotAnswered",
    "NotSupervising",
    "ReplyTo",
    "Request",
    "Restart",
    "Service",
    "Supervisor",
    "Terminated",
    "Timer",
    "Timers",
    "WakeUp",
    "open_actor_system",
]
