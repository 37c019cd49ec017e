"""A web service that publishes orders: Starlette over asyncio, with this project's producer in its lifespan.

    POST /orders {"id": "1", "customer": "ann"}    202, and the id of the message; a customer's orders keep their order
    GET /health                                    200 while the topic can be reached

Run it: pip install rmq-actors starlette uvicorn, then in this directory
NAMESRV_ADDR=127.0.0.1:9876 uvicorn --factory order_service:make_app (`rmq-actors cluster` gives it a cluster).
Its tests: pip install rmq-actors pytest starlette httpx, then pytest in this directory.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator, Mapping
from typing import TypedDict, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from rmq_actors import (
    AsyncioProducer,
    ClientError,
    Message,
    MessageRefused,
    ProducerConfig,
    open_asyncio_client,
    select_message_queue_by_hash,
)

TOPIC = "Orders"


class State(TypedDict):
    """What requests share."""

    producer: AsyncioProducer


def make_app(name_servers: str | None = None, *, timeout_ms: int = 3_000) -> Starlette:
    """The service; `name_servers` is "host:port;host:port", NAMESRV_ADDR by default."""
    address = name_servers or os.environ["NAMESRV_ADDR"]
    config = ProducerConfig("order-service", send_msg_timeout_ms=timeout_ms)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[State]:
        async with open_asyncio_client(address) as client, client.producer(config) as producer:
            yield {"producer": producer}

    routes = [Route("/orders", take_order, methods=["POST"]), Route("/health", health)]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={ClientError: not_published})


async def take_order(request: Request) -> JSONResponse:
    """Publish an order. It is accepted once a broker has it as safely as its settings ask."""
    try:
        order = json.loads(await request.body())
        key, customer = f"{order['id']}", f"{order['customer']}"
    except (ValueError, TypeError, KeyError) as error:
        return JSONResponse({"error": f"an order is JSON with id and customer: {error!r}"}, 400)
    message = Message(TOPIC, json.dumps(order).encode(), properties={"KEYS": key, "TAGS": "new"})
    result = await producer_of(request).send_by_selector(message, select_message_queue_by_hash, customer)
    return JSONResponse({"message": result.msg_id, "stored": result.status.value}, 202)


async def health(request: Request) -> JSONResponse:
    """Whether orders can be published."""
    return JSONResponse({"queues": len(await producer_of(request).queues_of(TOPIC))})


async def not_published(_: Request, error: Exception) -> JSONResponse:
    """A client's error says whether to try again: 503 with Retry-After, or 400 and 502."""
    assert isinstance(error, ClientError)
    body = {"error": f"{type(error).__name__}: {error}"}
    if error.retriable:
        return JSONResponse(body, 503, {"Retry-After": "1"})
    return JSONResponse(body, 400 if isinstance(error, MessageRefused) else 502)


def producer_of(request: Request) -> AsyncioProducer:
    """What the lifespan has opened."""
    return cast("Mapping[str, AsyncioProducer]", request.scope["state"])["producer"]
