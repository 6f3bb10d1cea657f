"""Opaque, prefixed text ids: `sess_` and 26 characters of base 32 for 128 random bits."""

from base64 import b32hexencode
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


def make_id(prefix: str, chance: bytes) -> str:
    """An id from 16 random bytes, which the caller brings."""
    return prefix + b32hexencode(chance)[:26].decode().lower()
