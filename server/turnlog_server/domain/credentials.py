"""API keys: `tlk_<prefix>_<secret>`, shown once, kept as a hash. Times are microseconds since the epoch, 0 for none."""

import hashlib
import hmac
import re
from base64 import b32hexencode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from turnlog_server.domain.access import Role
from turnlog_server.domain.pages import Position
from turnlog_server.domain.refusals import Reason, Refusal, invalid

CHANCE_BYTES: Final = 40
"""How many random bytes a secret is made from: 8 for the public prefix, 32 for what is secret."""

_PREFIX_CHARACTERS: Final = 12
_SHAPE: Final = re.compile(r"tlk_(?P<prefix>[0-9a-v]{12})_[0-9a-v]{52}")


@dataclass(frozen=True, slots=True)
class Secret:
    """What a caller proves a key with. `text` must never be logged; it is absent from the repr."""

    text: str = field(repr=False)
    prefix: str
    digest: bytes = field(repr=False)

    def proves(self, digest: bytes) -> bool:
        """Whether this is the secret behind a stored digest, in a time that tells nothing of how near it is."""
        return hmac.compare_digest(self.digest, digest)


def make_secret(chance: bytes) -> Secret:
    """A new secret from `CHANCE_BYTES` random bytes, which the caller brings."""
    if len(chance) != CHANCE_BYTES:
        raise ValueError(f"a secret is made from {CHANCE_BYTES} bytes")
    prefix = _base32(chance[:8])[:_PREFIX_CHARACTERS]
    return _secret(f"tlk_{prefix}_{_base32(chance[8:])}", prefix)


def parse_secret(text: str) -> Secret | None:
    """The secret that a caller sent, or None where it cannot be one of ours."""
    found = _SHAPE.fullmatch(text)
    return _secret(text, found["prefix"]) if found else None


def _secret(text: str, prefix: str) -> Secret:
    return Secret(text, prefix, hashlib.sha256(text.encode()).digest())


def _base32(chance: bytes) -> str:
    return b32hexencode(chance).decode().rstrip("=").lower()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A credential without its secret.

    subject: the principal or service account that it speaks for.
    runner_pools: what a runner with it may claim from; empty for any other key.
    rotated_from: the key that it replaces.
    """

    api_key_id: str
    workspace_id: str
    subject: str
    display_name: str
    prefix: str
    runner_pools: tuple[str, ...]
    create_time: int
    expire_time: int = 0
    revoke_time: int = 0
    rotated_from: str = ""

    @property
    def position(self) -> Position:
        """Lists are newest first."""
        return (self.create_time, self.api_key_id)

    def works_at(self, now: int) -> bool:
        """Whether it opens anything at this moment."""
        return not self.revoke_time and not (self.expire_time and self.expire_time <= now)


def check_key(role: Role, runner_pools: Sequence[str], known_pools: Sequence[str]) -> None:
    """Refuses a key whose pools do not fit the role of its subject: runners need some, and nobody else may have any.

    known_pools: those of `runner_pools` that exist.
    """
    if role is Role.RUNNER and not runner_pools:
        raise invalid("runner_pools", "must name the pools that the runner may claim from")
    if role is not Role.RUNNER and runner_pools:
        raise invalid("runner_pools", "is only for subjects with ROLE_RUNNER")
    for at, pool in enumerate(runner_pools):
        if pool not in known_pools:
            raise invalid(f"runner_pools[{at}]", f"no runner pool is called {pool}; create it first")


def check_expiry(expire_time: int | None, now: int) -> int:
    """When a new key stops to work, 0 for never. Refuses a moment that has passed."""
    if expire_time is not None and expire_time <= now:
        raise invalid("expire_time", "must lie in the future")
    return expire_time or 0


def successor_expiry(old: ApiKey, now: int) -> int:
    """When the key that replaces another stops to work: it lives as long as its predecessor was meant to."""
    return now + old.expire_time - old.create_time if old.expire_time else 0


def check_rotation(old: ApiKey, now: int) -> None:
    """Refuses to bring a dead key back to life."""
    if not old.works_at(now):
        state = "REVOKED" if old.revoke_time else "EXPIRED"
        raise Refusal(
            Reason.ILLEGAL_TRANSITION,
            f"{old.api_key_id} is {state.lower()} and cannot be rotated: make a new key with CreateApiKey.",
            {"from": state, "to": "ROTATED"},
        )


def credential_invalid() -> Refusal:
    """The one answer to a credential that is absent, malformed, unknown or revoked."""
    return Refusal(
        Reason.CREDENTIAL_INVALID,
        "No valid credential came with the call: send the metadata `authorization: Bearer tlk_…` with a key that is "
        "known and not revoked.",
    )


def credential_expired() -> Refusal:
    """The answer to a key whose time is over."""
    return Refusal(
        Reason.CREDENTIAL_EXPIRED, "The key has expired: use the one that replaced it, or ask for a new one."
    )
