"""What a runner hears from a harness, whatever kind of harness it is."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Ready:
    """Start-up is done. Comes once, before any event."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class HarnessEvent:
    """One event for the log.

    type: `agent.message`, `agent.tool_use`, `agent.tool_result` or `model.called`.
    payload: the contract's JSON form, snake_case, known keys only, within the limits; `ParseDict` takes it as it is.
    cut: something of it was cut to the limits; where the contract has a field or text for that, it says so.
    """

    type: str
    payload: dict[str, Any]
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Preview:
    """Text to show and forget, at most 64 KiB."""

    text: str


@dataclass(frozen=True, slots=True)
class Settle:
    """The harness ended the turn. Usage that it reported here came as a `model.called` just before.

    outcome: `succeeded` or `failed`. error_code and message: empty unless it failed.
    """

    outcome: str
    error_code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ProtocolError:
    """The harness wrote what the protocol does not allow, and the attempt has failed.

    error_code: `harness.protocol_error` or `harness.protocol_unsupported`. message: names line and place.
    """

    error_code: str
    message: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The harness is gone without having settled, and the attempt has failed.

    code: exit code, or minus the signal's number. stderr_tail: the last it wrote there, at most 4 KiB.
    """

    code: int
    stderr_tail: str = ""

    @property
    def error_code(self) -> str:
        return "harness.exited"

    @property
    def message(self) -> str:
        how = f"with exit code {self.code}" if self.code >= 0 else f"by signal {-self.code}"
        last = self.stderr_tail.strip()
        return f"The harness ended {how} without settling." + (f" Its last words: {last[-700:]}" if last else "")


Output = Ready | HarnessEvent | Preview | Settle | ProtocolError | Exited

Terminal = Settle | ProtocolError | Exited


class HarnessRun(Protocol):
    """One attempt in one harness.

    Iterate once: the last output is one `Settle`, `ProtocolError` or `Exited`. A slow consumer slows the harness.
    `close` or `kill` must end every use, also after an error.
    """

    async def send(self, message: dict[str, Any]) -> None:
        """Sends a message of the protocol: first a `start`, later a `log`. A harness that is gone is no error."""
        ...

    def __aiter__(self) -> AsyncIterator[Output]: ...

    async def interrupt(self, reason: str = "") -> None:
        """Asks the harness to come to an end and settle. Never waits for it."""
        ...

    async def cancel(self, reason: str = "", grace: float = 5.0) -> None:
        """Tells the harness to stop, gives it `grace` seconds, then kills its whole tree."""
        ...

    async def close(self, grace: float = 2.0) -> None:
        """After the last output: lets the harness exit by itself for `grace` seconds, then kills what is left."""
        ...

    async def kill(self, grace: float = 1.0) -> None:
        """SIGTERM to the whole tree, SIGKILL after `grace` seconds (0: at once). Returns when all of it is gone."""
        ...
