"""What every command shares: the options --coordinator and --json, and one call to a client on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from gymckpt.cli.options import address, together
from gymckpt.cli.output import Output
from gymckpt.coordinator import CoordinatorClient
from gymckpt.errors import CoordinatorStarting

T = TypeVar("T")

COORDINATOR = "GYMCKPT_COORDINATOR"
RETRY_SECONDS = 0.5


@dataclass(slots=True)
class Session:
    """One run of the command line."""

    coordinator: str | None = None
    out: Output = field(default_factory=Output)

    def address(self) -> str:
        """Where the coordinator is. Raises UsageError when nobody said so."""
        if self.coordinator is None:
            raise click.UsageError(
                f"which coordinator? Give --coordinator HOST:PORT, or set {COORDINATOR}; `gymckpt serve` prints its address"
            )
        return self.coordinator

    def call(self, work: Callable[[CoordinatorClient], Coroutine[Any, Any, T]]) -> T:
        """Runs `work` with a client of the coordinator. Raises what the client raises, and UsageError without an address."""
        address = self.address()

        async def connected() -> T:
            async with CoordinatorClient(address) as client:
                return await self.once_started(client, work)

        return asyncio.run(connected())

    async def once_started(
        self, client: CoordinatorClient, work: Callable[[CoordinatorClient], Coroutine[Any, Any, T]]
    ) -> T:
        """Says what a coordinator that is starting waits for, and asks again: each request is a question, or named by an id."""
        told = ""
        while True:
            try:
                return await work(client)
            except CoordinatorStarting as starting:
                if starting.message != told:
                    self.out.warn(starting.message)
                told = starting.message
                await asyncio.sleep(starting.retry_after or RETRY_SECONDS)


pass_session = click.make_pass_decorator(Session)


def _set_json(ctx: click.Context, _param: click.Parameter, given: bool) -> None:
    if given:
        ctx.ensure_object(Session).out.as_json = True


def _set_coordinator(ctx: click.Context, param: click.Parameter, given: str | None) -> None:
    if given is not None:
        ctx.ensure_object(Session).coordinator = address(ctx, param, given)


# Both may stand before or after the name of the command.
shared_options = together(
    click.option(
        "--coordinator",
        metavar="HOST:PORT",
        expose_value=False,
        callback=_set_coordinator,
        help=f"Address of `gymckpt serve`. Default: {COORDINATOR}.",
    ),
    click.option(
        "--json", "as_json", is_flag=True, expose_value=False, callback=_set_json, help="Print one JSON document."
    ),
)
