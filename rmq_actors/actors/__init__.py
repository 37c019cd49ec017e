"""The actor runtime: actors and services with a lifetime, a bounded mailbox and a supervisor, in Trio.

An actor handles typed messages one at a time; a service is a loop of its own. Both live in an actor system, a nursery
with a name, below supervisors that make them again when they fail. docs/runtime-semantics.md numbers what is
guaranteed. The services of the broker exchange values over channels (`services.channels`); none reads another's fields.
The package imports nothing else of rmq_actors, so that it can be read and used alone; `tracer` says what it tells.
"""

from rmq_actors.actors.census import Census
from rmq_actors.actors.messages.actor import Actor, ActorSupervisor, Context
from rmq_actors.actors.messages.cell import (
    ActorDied,
    ActorStopped,
    AskCycle,
    AskFailed,
    AskTimeout,
    HandlerFailed,
    NotAnswered,
)
from rmq_actors.actors.messages.dead_letters import DeadLetter, DeadLetters
from rmq_actors.actors.messages.mailbox import MailboxFull, MailboxLimits
from rmq_actors.actors.messages.ref import ActorRef, ReplyTo, Request
from rmq_actors.actors.messages.timers import Timer, Timers
from rmq_actors.actors.restart import ESCALATE, Restart, Terminated
from rmq_actors.actors.services.child import ActorEnded
from rmq_actors.actors.services.service import Service, WakeUp
from rmq_actors.actors.services.supervisor import NotSupervising, Supervisor
from rmq_actors.actors.system import ActorSystem, open_actor_system
from rmq_actors.actors.tracer import ActorTracer

__all__ = [
    "ESCALATE",
    "Actor",
    "ActorDied",
    "ActorEnded",
    "ActorRef",
    "ActorStopped",
    "ActorSupervisor",
    "ActorSystem",
    "ActorTracer",
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
