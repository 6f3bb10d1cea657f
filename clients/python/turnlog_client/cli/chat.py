"""`turnlog session chat`: sugar over `create`, `steer` and `follow`."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Annotated

import typer

from turnlog_client import v1
from turnlog_client.cli.command import Cli, command
from turnlog_client.cli.exits import Exit, exit_for, next_step
from turnlog_client.cli.names import starting_deployment_id
from turnlog_client.cli.options import ActingPrincipal, AgentDeployment, worth_saying
from turnlog_client.cli.transcript import Transcript
from turnlog_client.cli.watch import Watch, view_for
from turnlog_client.errors import InvalidRequest, TurnlogError
from turnlog_client.events import StartedRun


def register(app: typer.Typer) -> None:
    """Adds `chat`."""
    command(app, "chat", connects=False)(chat)


def chat(
    cli: Cli,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="SESSION [TEXT] | --new [TEXT]", help="The Session, sess_…, and what to say first."),
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="Start a Session.")] = False,
    agent_deployment: AgentDeployment = "",
    principal: ActingPrincipal = "",
) -> Exit | None:
    """Talks to a Session, turn after turn.

    Ctrl-C during a turn interrupts it, a second one leaves. Without a terminal, each line of stdin is a turn.
    """
    said = list(words or ())
    session_id = "" if new else (said.pop(0) if said else "")
    if not new and not session_id.startswith("sess_"):
        raise InvalidRequest("Name a Session, sess_…, or start one with --new.")
    if len(said) > 1:
        raise InvalidRequest("Quote what you say: it is one argument.")
    said = [worth_saying(text) for text in said]
    cli.run(cli.connect().__aenter__())
    try:
        deployment = cli.run(starting_deployment_id(cli, agent_deployment)) if new else ""
        talk = Talk(cli, session_id, deployment, principal)
        return _converse(cli, talk, said)
    finally:
        cli.run(cli.t.__aexit__())


def _converse(cli: Cli, talk: Talk, said: list[str]) -> Exit | None:
    at_terminal = sys.stdin.isatty() and cli.out.live
    if not said:
        cli.run(talk.start())
    code = None
    for text in _spoken(said, at_terminal):
        try:
            code = cli.run(talk.turn(text))
        except TurnlogError as error:
            if not at_terminal:
                raise
            # A refused message is no reason to lose the conversation.
            cli.out.failure(error, exit_for(error), next_step(error, cli.address, cli.names))
    return None if at_terminal else code


def _spoken(said: list[str], at_terminal: bool) -> Iterator[str]:
    yield from said
    if not at_terminal:
        # With a text on the command line, stdin may be anything, and is left alone.
        if not said:
            yield from (line for line in map(str.rstrip, sys.stdin) if line)
        return
    with suppress(ImportError):
        import_module("readline")  # gives input() a history and the usual keys
    while True:
        try:
            text = (_typed_ahead() or input("> ")).strip()
        except EOFError:
            print()
            return
        if text:
            yield text
        else:
            print("  Type what you want to say; Ctrl-D leaves.")


def _typed_ahead() -> str:
    """The line that was typed before it was asked for; empty for none. Raises EOFError for a Ctrl-D.

    readline takes the terminal out of its line mode; a Ctrl-D from before then reaches it as no Ctrl-D.
    """
    if os.name != "posix" or not select.select([sys.stdin], [], [], 0)[0]:
        return ""
    # A terminal in its line mode gives one line at a time.
    line = os.read(sys.stdin.fileno(), 65536).decode(sys.stdin.encoding, "replace")
    if not line:
        raise EOFError
    print(f"> {line.rstrip()}")
    return line


class Talk:
    """The state of one chat: its Session, and how far it was shown."""

    def __init__(self, cli: Cli, session_id: str, agent_deployment: str, principal: str) -> None:
        self._cli = cli
        self._session_id = session_id
        self._agent_deployment = agent_deployment
        self._principal = principal
        self._view = view_for(cli)
        self._watch: Watch | None = None

    async def start(self) -> None:
        """Makes or finds the Session when there is nothing to say yet."""
        if self._session_id:
            session = (await self._cli.t.sessions.get(self._session_id)).session or v1.Session()
        else:
            made = await self._cli.t.sessions.create(self._agent_deployment, principal=self._principal)
            session = made.session or v1.Session()
            self._session_id = session.session_id
            self._cli.out.say(self._session_id, "dim")
        self._watch = Watch(self._cli, self._session_id, self._view)
        self._watch.seq = session.head_seq

    async def turn(self, text: str) -> Exit:
        """Says one thing and shows what comes of it."""
        t = self._cli.t
        if self._session_id:
            started: v1.AppendEventResponse | v1.CreateSessionResponse = await t.sessions.steer(
                self._session_id, text, principal=self._principal
            )
        else:
            started = await t.sessions.create(self._agent_deployment, principal=self._principal, first_message=text)
            self._session_id = started.session.session_id if started.session else ""
        if self._watch is None:
            self._watch = Watch(self._cli, self._session_id, self._view)
            self._watch.seq = started.seq - 1
        if isinstance(self._view, Transcript):
            self._view.hidden.add(started.seq)
        with self._interrupting(started):
            return await self._watch.follow(after_seq=self._watch.seq, until=started, previews=self._cli.out.live)

    @contextmanager
    def _interrupting(self, started: StartedRun) -> Iterator[None]:
        """Ctrl-C interrupts the turn; a second one leaves."""
        loop = asyncio.get_running_loop()
        turn = asyncio.current_task()
        asked: list[asyncio.Task[None]] = []

        def on_ctrl_c() -> None:
            if asked:
                leave.append(True)
                if turn:
                    turn.cancel()
            else:
                asked.append(asyncio.ensure_future(self._interrupt(started.run_id)))

        leave: list[bool] = []
        try:
            loop.add_signal_handler(signal.SIGINT, on_ctrl_c)
        except (NotImplementedError, RuntimeError, ValueError):
            # No such handlers on Windows or outside the main thread: there the first Ctrl-C leaves.
            yield
            return
        try:
            yield
        except asyncio.CancelledError:
            if leave:
                raise KeyboardInterrupt from None
            raise
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def _interrupt(self, run_id: str) -> None:
        self._view.remark("interrupting (Ctrl-C again leaves)")
        try:
            await self._cli.t.sessions.interrupt(self._session_id, reason="Ctrl-C", run_id=run_id)
        except TurnlogError as error:
            self._view.remark(f"not interrupted: {error}")
