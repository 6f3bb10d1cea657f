"""What a runner is started with."""

import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from turnlog_client.channel import Tls, names_port
from turnlog_client.profile import is_key

Command = Literal["echo"] | Sequence[str]
"""How a harness profile is served: by the built-in echo, or by a command as argv."""


class OptionsError(ValueError):
    """Options that no runner can be started with. The text is for the person who typed them."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times in seconds that only tests and unusual networks change.

    keepalive, keepalive_timeout: HTTP/2 pings on a connection on which nothing is heard, and how long their answer may
        take. The server closes connections that ping more often than every 10 s. The second is also how long TCP may
        wait for what was written to be acknowledged; with the heartbeat interval it must stay below the server's lease.
    connect: how long one connection may take to be made and welcomed.
    backoff_first, backoff_most: bounds of the random wait before a reconnect.
    backoff_holding: the upper one while Runs are held, whose lease goes on meanwhile.
    refused_first, refused_most: the same where the server refused the runner, which waiting alone rarely mends.
    steady: a connection that held for this long was a good one; after it the waits begin anew.
    tick: how often the lease is looked at.
    cancel_grace: what a harness gets to act on a cancel before it is killed.
    farewell: what the last messages before an exit may take.
    """

    keepalive: float = 10.0
    keepalive_timeout: float = 4.0
    connect: float = 5.0
    backoff_first: float = 0.5
    backoff_most: float = 20.0
    backoff_holding: float = 1.0
    refused_first: float = 10.0
    refused_most: float = 300.0
    steady: float = 10.0
    tick: float = 0.5
    cancel_grace: float = 3.0
    farewell: float = 5.0

    @property
    def arrival(self) -> float:
        """What was written this long ago has arrived if the connection is still there."""
        # gRPC sets TCP_USER_TIMEOUT to its keepalive timeout; where there is no such option, pings must do.
        return self.keepalive_timeout if sys.platform == "linux" else self.keepalive + self.keepalive_timeout


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """What a runner is started with.

    address: `host:port`, or several with commas between them, taken in turn.
    harnesses: harness profile name to how it is served.
    data_dir: the runner's folder. Its id is kept there; two runners cannot share one.
    key, key_file: the API key, or the file that holds it; the file is read again for every connection.
    tls: None means plaintext to this machine and TLS to any other; False sends the key in plaintext wherever it is.
    pools: what to claim from. Empty means `default`.
    capacity: how many Runs at once.
    display_name: for people; the host's name where it is empty.
    drain_grace: what Runs get to finish after SIGTERM, in seconds.
    work_dir: where harnesses get their working folders; inside data_dir where it is None.
    environment: added to what harnesses inherit.
    exit_when_refused: ends instead of trying again when the server refuses the runner or its key.
    handle_signals: SIGTERM and SIGINT drain. Off for a runner inside another program.
    """

    address: str
    harnesses: Mapping[str, Command]
    data_dir: Path
    key: str = field(default="", repr=False)
    key_file: Path | None = None
    tls: Tls | bool | None = None
    pools: Sequence[str] = ()
    capacity: int = 4
    display_name: str = ""
    drain_grace: float = 600.0
    work_dir: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    exit_when_refused: bool = False
    handle_signals: bool = True
    timing: Timing = Timing()

    def __post_init__(self) -> None:
        if not self.addresses:
            raise OptionsError("A runner needs the server's address, such as 127.0.0.1:7777.")
        for address in self.addresses:
            if not names_port(address):
                raise OptionsError(f"{address!r} names no port: name one, such as 127.0.0.1:7777.")
        if not self.harnesses:
            raise OptionsError("A runner needs at least one harness, such as echo=echo.")
        if not 1 <= self.capacity <= 1000:
            raise OptionsError(f"capacity must be between 1 and 1000, not {self.capacity}.")
        for profile, command in self.harnesses.items():
            if isinstance(command, str) and command != "echo":
                raise OptionsError(f'The command of harness {profile} must be "echo" or a list of arguments.')
            if not command:
                raise OptionsError(f"The command of harness {profile} is empty.")

    @property
    def addresses(self) -> list[str]:
        """The addresses, in the order in which they are tried."""
        return [each.strip() for each in self.address.split(",") if each.strip()]

    @property
    def served_pools(self) -> list[str]:
        """The pools, each once."""
        return list(dict.fromkeys(self.pools)) or ["default"]

    @property
    def shown_name(self) -> str:
        """What people see the runner as."""
        return (self.display_name or socket.gethostname())[:200]

    def read_key(self) -> str:
        """The API key as it now is. Raises OptionsError when its file cannot be read or holds no key."""
        try:
            key = self.key_file.read_text("utf-8", "replace").strip() if self.key_file else self.key
        except OSError as error:
            raise OptionsError(f"Cannot read the key file {self.key_file}: {error.strerror}.") from error
        if not is_key(key) and (key or self.key_file):
            raise OptionsError(f"{self.key_file or 'The key'} must be one `tlk_…` token and nothing else.")
        return key
