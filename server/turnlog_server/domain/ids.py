"""Opaque, prefixed text ids: `sess_` and 26 characters of base 32 for 130 random bits."""

from typing import Final

SESSION: Final = "sess_"
EVENT: Final = "evt_"
RUN: Final = "run_"
WORKSPACE: Final = "ws_"
PRINCIPAL: Final = "prn_"
SERVICE_ACCOUNT: Final = "svc_"
API_KEY: Final = "key_"
AGENT: Final = "agt_"
HARNESS_PROFILE: Final = "hpr_"
SANDBOX_PROFILE: Final = "spr_"
DEPLOYMENT: Final = "adep_"
RUNNER: Final = "rnr_"

CHANCE_BYTES: Final = 26
_DIGIT_OF: Final = b"0123456789abcdefghijklmnopqrstuv" * 8


def make_id(prefix: str, chance: bytes) -> str:
    """An id from `CHANCE_BYTES` random bytes, which the caller brings: each gives a digit, of five of its bits."""
    if len(chance) != CHANCE_BYTES:
        raise ValueError(f"an id is made from {CHANCE_BYTES} bytes")
    return prefix + chance.translate(_DIGIT_OF).decode()
