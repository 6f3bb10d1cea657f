"""Turns a function into a command: connects, runs it, and turns what it raises into an exit code."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from grpc import StatusCode

from turnlog_client.channel import Tls
from turnlog_client.cli.exits import Exit, exit_for, next_step
from turnlog_client.cli.output import Output
from turnlog_client.client import Turnlog
from turnlog_client.errors import TurnlogError, Unauthenticated

Answer = TypeVar("Answer")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Globals:
    """What may be said before or after the command's name."""

    as_json: bool = False
    address: str | None = None
    key: str | None = None
    profile: str | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    plaintext: bool = False

    @property
    def tls(self) -> Tls | bool | None:
        """How the channel is secured; None leaves it to the address and the profile."""
        if self.plaintext:
            return False
        if self.tls_ca or self.tls_cert:
            return Tls(ca_file=self.tls_ca, cert_file=self.tls_cert, key_file=self.tls_key)
        return None


Json = Annotated[
    bool, typer.Option("--json", help="JSON lines on stdout: what was read as it is, answers of changes whole.")
]
Address = Annotated[str | None, typer.Option("--address", help="The server, host:port.", metavar="HOST:PORT")]
Key = Annotated[str | None, typer.Option("--key", help="The API key. TURNLOG_KEY keeps it out of the process list.")]
ProfileFile = Annotated[str | None, typer.Option("--profile", help="A profile file.", metavar="FILE")]


class Cli:
    """What a command has in hand: where answers go, the connection, and the loop that it runs in."""

    t: Turnlog

    def __init__(self, chosen: Globals) -> None:
        self.globals = chosen
        self.out = Output(as_json=chosen.as_json)
        self.names: dict[str, str] = {}
        """The ids that were found by name, with the name."""
        self._runner = asyncio.Runner()

    @property
    def address(self) -> str:
        """The server that is spoken to."""
        return self.t.profile.address if hasattr(self, "t") else self.globals.address or ""

    def connect(self, *, key_elsewhere: bool = False) -> Turnlog:
        """The client of the chosen server, not yet entered. Raises ProfileError, and Unauthenticated without a key.

        key_elsewhere: the command has its key from somewhere else.
        """
        chosen = self.globals
        self.t = Turnlog.connect(chosen.address, chosen.key, chosen.profile, tls=chosen.tls, patience=5.0)
        if not (self.t.profile.key or key_elsewhere):
            # The server would say so as well, but not that a profile's key goes to the profile's own server only.
            raise Unauthenticated(f"No key was given for {self.address}.", code=StatusCode.UNAUTHENTICATED)
        return self.t

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Runs a coroutine in the command's one loop. Ctrl-C cancels it and raises KeyboardInterrupt."""
        return self._runner.run(work)

    def close(self) -> None:
        """Ends the loop."""
        self._runner.close()


def command(app: typer.Typer, name: str, *, connects: bool = True) -> Callable[[Command], Command]:
    """Registers `name` on `app`. The function takes a Cli first; a coroutine function finds `cli.t` connected.

    It answers an exit code, or None for 0.
    """

    def register(function: Command) -> Command:
        def run(context: typer.Context, **given: Any) -> None:
            before = context.find_root().obj or Globals()
            after = Globals(
                given.pop("as_json"), given.pop("at_address"), given.pop("with_key"), given.pop("by_profile")
            )
            cli = Cli(_merged(before, after))
            code = _guarded(cli, lambda: _call(cli, function, given, connects))
            raise typer.Exit(int(code))

        signature = inspect.signature(function, eval_str=True)
        _, *own = signature.parameters.values()
        parameters = [_parameter("context", typer.Context), *own, *_CONNECTION]
        run.__signature__ = signature.replace(  # pyright: ignore[reportFunctionMemberAccess]
            parameters=sorted(parameters, key=lambda each: each.default is not inspect.Parameter.empty),
            return_annotation=None,
        )
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.__doc__ = function.__doc__
        run.__name__ = function.__name__
        app.command(name)(run)
        return function

    return register


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)


def _hidden(flag: str) -> Any:
    # The same options stand in `turnlog --help`; here they would drown the command's own.
    return Annotated[str | None, typer.Option(flag, hidden=True)]


_CONNECTION = [
    _parameter("as_json", Json, False),
    _parameter("at_address", _hidden("--address"), None),
    _parameter("with_key", _hidden("--key"), None),
    _parameter("by_profile", _hidden("--profile"), None),
]


def _merged(before: Globals, after: Globals) -> Globals:
    return replace(
        before,
        as_json=before.as_json or after.as_json,
        address=after.address or before.address,
        key=after.key or before.key,
        profile=after.profile or before.profile,
    )


def _call(cli: Cli, function: Callable[..., Any], given: dict[str, Any], connects: bool) -> Exit | None:
    if not inspect.iscoroutinefunction(function):
        return function(cli, **given)

    async def connected() -> Exit | None:
        async with cli.connect():
            return await function(cli, **given)

    return cli.run(connected() if connects else function(cli, **given))


def _guarded(cli: Cli, work: Callable[[], Exit | None]) -> Exit:
    try:
        return work() or Exit.OK
    except TurnlogError as error:
        code = exit_for(error)
        cli.out.failure(error, code, next_step(error, cli.address, cli.names))
        return code
    except (OSError, UnicodeError) as error:
        if isinstance(error, BrokenPipeError):
            # Whoever read has enough. Python would complain once more when it closes stdout.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return Exit.OK
        cli.out.failure(TurnlogError(str(error)), Exit.USAGE, "")
        return Exit.USAGE
    except KeyboardInterrupt:
        return Exit.CTRL_C
    finally:
        cli.close()
