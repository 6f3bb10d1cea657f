"""Who calls: the key behind a bearer token, remembered for as long as nobody's access has changed.

What is remembered of a key was true at one permission epoch of its workspace. Whoever reads a newer epoch, in a log
statement, with a page of events or from a hint, says so by `note_epoch`, and everything older is read again before it
is believed. Expiry needs no database: it is checked at every use.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from turnlog_server.domain.access import Caller
from turnlog_server.domain.credentials import credential_expired, credential_invalid, parse_secret
from turnlog_server.service.epochs import Epochs
from turnlog_server.store.credentials import Credential, credential_by_id, credential_by_prefix
from turnlog_server.store.database import Database
from turnlog_server.store.execute import Execute, reading

FRESH_SECONDS: Final = 1.0
"""How old a caller may be where it has to be fresh."""

REMEMBERED_KEYS: Final = 10_000

# What an unknown prefix is compared with, so that it takes as long as a known one.
_NOBODY: Final = bytes(32)


def wall_clock() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


@dataclass(slots=True, weakref_slot=True)
class _Remembered:
    """One key. `read_at` is when it was last asked for, in the time of the event loop; revoked is for ever."""

    caller: Caller
    read_at: float = 0.0
    revoked: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Authenticator:
    """Turns a bearer token into a Caller, and looks again when told to."""

    def __init__(self, db: Database, epochs: Epochs | None = None, now: Callable[[], int] = wall_clock) -> None:
        """now: microseconds since the epoch."""
        self._db = db
        self._epochs = epochs or Epochs()
        self._now = now
        self._by_digest: OrderedDict[bytes, _Remembered] = OrderedDict()
        self._by_id: WeakValueDictionary[str, _Remembered] = WeakValueDictionary()

    def known_epoch(self, workspace_id: str) -> int:
        """The newest permission epoch that this replica heard of; 0 before the first."""
        return self._epochs.get(workspace_id) or 0

    def note_epoch(self, workspace_id: str, epoch: int) -> None:
        """Somebody read this epoch: callers of an older one are stale."""
        self._epochs.note(workspace_id, epoch)

    async def authenticate(self, bearer: str, *, fresh: bool = False, deadline: float | None = None) -> Caller:
        """The caller that a bearer token stands for.

        fresh: it was read at most a second ago. Without it, whoever writes compares the caller's epoch itself.

        Raises Refusal(CREDENTIAL_INVALID) and Refusal(CREDENTIAL_EXPIRED).
        """
        digest = hashlib.sha256(bearer.encode()).digest()
        execute = reading(self._db, "authenticate", deadline)
        known = self._by_digest.get(digest)
        if known is None:
            known = await self._meet(bearer, execute)
        else:
            self._by_digest.move_to_end(digest)
            await self._bring_up(known, asyncio.get_running_loop().time() - FRESH_SECONDS if fresh else 0.0, execute)
        return self._open(known)

    async def judge(self, caller: Caller) -> Caller:
        """The same caller as of the newest permission epoch: one above the caller's, or the one of this moment.

        Raises Refusal(CREDENTIAL_INVALID) and Refusal(CREDENTIAL_EXPIRED). Whether the role is still enough is for the
        one who asks to see.
        """
        asked = asyncio.get_running_loop().time()
        known = self._by_id.setdefault(caller.api_key_id, _Remembered(caller))
        # A thousand streams may ask at once: the first reads, the others find what it read.
        newer = known.caller.epoch > caller.epoch
        await self._bring_up(known, 0.0 if newer else asked, reading(self._db, "judge"))
        return self._open(known)

    async def _meet(self, bearer: str, execute: Execute) -> _Remembered:
        read_at = asyncio.get_running_loop().time()
        secret = parse_secret(bearer)
        found = await credential_by_prefix(execute, secret.prefix) if secret else None
        if secret is None or not secret.proves(found.digest if found else _NOBODY) or found is None or found.revoked:
            raise credential_invalid()
        known = self._by_id.setdefault(found.caller.api_key_id, _Remembered(found.caller))
        self._learn(known, found, read_at)
        self._by_digest[secret.digest] = known
        if len(self._by_digest) > REMEMBERED_KEYS:
            self._by_digest.popitem(last=False)
        return known

    async def _bring_up(self, known: _Remembered, oldest: float, execute: Execute) -> None:
        """Read a key again, unless it was read at `oldest` or later and nobody's access changed since."""
        if self._stands(known, oldest):
            return
        async with known.lock:
            if not self._stands(known, oldest):
                read_at = asyncio.get_running_loop().time()
                self._learn(known, await credential_by_id(execute, known.caller.api_key_id), read_at)

    def _stands(self, known: _Remembered, oldest: float) -> bool:
        epoch = self.known_epoch(known.caller.workspace_id)
        return known.revoked or (known.read_at >= oldest and known.caller.epoch >= epoch)

    def _learn(self, known: _Remembered, found: Credential | None, read_at: float) -> None:
        if found is None or found.revoked:
            known.revoked = True
        elif found.caller.epoch >= known.caller.epoch:
            known.caller, known.read_at = found.caller, read_at
            self.note_epoch(found.caller.workspace_id, found.caller.epoch)

    def _open(self, known: _Remembered) -> Caller:
        if known.revoked:
            raise credential_invalid()
        if known.caller.expire_time and known.caller.expire_time <= self._now():
            raise credential_expired()
        return known.caller
