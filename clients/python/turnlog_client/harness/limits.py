"""The protocol's version and limits. Sizes are in bytes of UTF-8."""

PROTOCOL = 1

MAX_LINE_BYTES = 4 << 20
"""The longest line from a harness that is kept whole. In a longer one the long strings are cut; it is never a fault."""

MAX_START_BYTES = 16 << 20
"""The longest `start` line. Old history is left out to stay within it."""

MAX_EVENT_BYTES = 256 << 10
"""The largest payload of one event, as the contract has it."""

MAX_EVENT_CONTENT_BYTES = MAX_EVENT_BYTES - (4 << 10)
"""What texts and data of one event may hold together; the rest is for ids, names and the encoding itself."""

MAX_PREVIEW_BYTES = 64 << 10
"""The largest preview; a longer one is split."""

MAX_ERROR_MESSAGE_BYTES = 1 << 10
"""The longest message of an error; a longer one is cut."""

MAX_LOG_BYTES = 4 << 10
"""The longest log message, and the longest line of stderr that is logged whole."""

MAX_PARTS = 1_000
"""Parts of one message or result."""

MAX_STRUCT_DEPTH = 32
"""Levels of a tool's arguments, the outermost object included."""

MAX_STRUCT_ENTRIES = 1_000
"""Entries of one object in a tool's arguments."""


def as_json() -> dict[str, int]:
    """The `limits` of a `start` message."""
    return {
        "max_line_bytes": MAX_LINE_BYTES,
        "max_event_bytes": MAX_EVENT_BYTES,
        "max_preview_bytes": MAX_PREVIEW_BYTES,
    }
