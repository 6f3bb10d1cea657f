"""Opaque, prefixed text ids: `sess_` and 26 characters of base 32 for 128 random bits."""

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

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuv"
_PAIRS: Final = tuple(high + low for high in _DIGITS for low in _DIGITS)
_SHIFTS: Final = tuple(range(120, -1, -10))


def make_id(prefix: str, chance: bytes) -> str:
    """An id from 16 random bytes, which the caller brings."""
    # 130 bits are thirteen pairs of digits. Every event gets an id, and `base64` takes four times as long.
    number = int.from_bytes(chance) << 2
    pairs = _PAIRS
    return prefix + "".join([pairs[number >> shift & 1023] for shift in _SHIFTS])
