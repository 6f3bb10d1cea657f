"""Every bound of the contract in one place. `docs/limits.md` and GetServerInfo are made from `LIMITS`."""

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

MESSAGE_BYTES: Final = 4 * MIB
TRANSPORT_BYTES: Final = 8 * MIB
RESPONSE_BYTES: Final = 4 * MIB
EVENT_PAYLOAD_BYTES: Final = 256 * KIB
STRUCT_DEPTH: Final = 32
STRUCT_ENTRIES: Final = 1_000
QUEUED_TURNS: Final = 100
LIST_EVENTS_DEFAULT: Final = 100
LIST_EVENTS_MAXIMUM: Final = 1_000
PAGE_DEFAULT: Final = 50
PAGE_MAXIMUM: Final = 500
FOLLOW_SESSIONS: Final = 1_000
LANE_REQUESTS: Final = 1_024
LANE_BYTES: Final = 16 * MIB
BATCH_COMMANDS: Final = 256
BATCH_BYTES: Final = 1 * MIB
RUNNER_UNACKED_MESSAGES: Final = 64
RUNNER_UNACKED_BYTES: Final = 1 * MIB
RUNNER_APPEND_EVENTS: Final = 1_000
OFFER_HISTORY_BYTES: Final = 256 * KIB
OFFER_HISTORY_EVENTS: Final = 100
ERROR_MESSAGE_BYTES: Final = 1 * KIB
TEXT_FOR_PEOPLE_BYTES: Final = 1 * KIB
REQUEST_ID_HOURS: Final = 24
UNARY_DEADLINE_SECONDS: Final = 30
FOLLOWER_STALL_SECONDS: Final = 300
PROGRESS_SECONDS: Final = 15


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound as the documentation tells it.

    name: with its unit, as GetServerInfo and LIMIT_EXCEEDED spell it.
    says: what happens beyond it.
    """

    name: str
    value: int
    says: str


LIMITS: Final = (
    Limit("message_bytes", MESSAGE_BYTES, "A larger request is refused with LIMIT_EXCEEDED."),
    Limit("transport_bytes", TRANSPORT_BYTES, "Beyond this gRPC itself answers RESOURCE_EXHAUSTED."),
    Limit("response_bytes", RESPONSE_BYTES, "No response message is larger; pages are cut before."),
    Limit("event_payload_bytes", EVENT_PAYLOAD_BYTES, "A larger event is refused: upload as a file and attach."),
    Limit("struct_depth", STRUCT_DEPTH, "A deeper Struct is refused."),
    Limit("struct_entries", STRUCT_ENTRIES, "A map or list of a Struct with more entries is refused."),
    Limit("queued_turns", QUEUED_TURNS, "One more message to the Session is refused with QUOTA_EXCEEDED."),
    Limit("list_events_page", LIST_EVENTS_MAXIMUM, "A larger page_size is lowered."),
    Limit("page", PAGE_MAXIMUM, "A larger page_size of any other List is lowered."),
    Limit("follow_sessions", FOLLOW_SESSIONS, "FollowSessions with more Sessions is refused."),
    Limit("lane_requests", LANE_REQUESTS, "More writes waiting in one replica are refused with QUOTA_EXCEEDED."),
    Limit("lane_bytes", LANE_BYTES, "More bytes waiting in one replica are refused with QUOTA_EXCEEDED."),
    Limit("runner_unacked_messages", RUNNER_UNACKED_MESSAGES, "A runner that sends more breaks the protocol."),
    Limit("runner_unacked_bytes", RUNNER_UNACKED_BYTES, "A runner that sends more breaks the protocol."),
    Limit("runner_append_events", RUNNER_APPEND_EVENTS, "A larger Append is refused."),
    Limit("offer_history_bytes", OFFER_HISTORY_BYTES, "Older events are left out of an Offer and counted."),
    Limit("offer_history_events", OFFER_HISTORY_EVENTS, "Older events are left out of an Offer and counted."),
    Limit("error_message_bytes", ERROR_MESSAGE_BYTES, "A longer status message is cut."),
    Limit("request_id_hours", REQUEST_ID_HOURS, "Request ids are kept at least this long."),
    Limit("unary_deadline_seconds", UNARY_DEADLINE_SECONDS, "Given to unary calls that bring no deadline."),
    Limit("follower_stall_seconds", FOLLOWER_STALL_SECONDS, "A follower that takes nothing for longer is ended."),
    Limit("progress_seconds", PROGRESS_SECONDS, "An idle follow gets a frame at least this often."),
)
