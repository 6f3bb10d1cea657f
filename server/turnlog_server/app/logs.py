"""Log lines: JSON for machines, colours for people, and in neither what nobody may read there.

What a line is about (call_id, method, request_id, session_id, workspace) is bound once a call with
`structlog.contextvars` and stands on every line that is written while the call is carried out.
"""

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import structlog
from structlog.typing import Processor

from turnlog_server.app.settings import LogFormat, LogLevel

HIDDEN: Final = "[hidden]"

# A key of ours wherever it stands, what follows `Bearer`, and the password in a database URL or conninfo.
_SECRETS: Final = (
    (re.compile(r"tlk_([0-9a-v]{12})_[0-9a-v]+"), r"tlk_\1_" + HIDDEN),
    (re.compile(r"(?i)\b(bearer)\s+\S+"), rf"\1 {HIDDEN}"),
    (re.compile(r"(://[^:/@\s]*):[^@/\s]+@"), rf"\1:{HIDDEN}@"),
    (re.compile(r"(?i)\b(password)=('(?:[^'\\]|\\.)*'|\S+)"), rf"\1={HIDDEN}"),
)
_NEVER: Final = frozenset(
    {
        "authorization",
        "body",
        "content",
        "key",
        "lease_token",
        "metadata",
        "password",
        "payload",
        "secret",
        "text",
        "token",
    }
)


def configure(level: LogLevel = "info", form: LogFormat = "auto") -> None:
    """Sends everything that this process logs to standard error: ours, and what the libraries say."""
    human = form == "human" or (form == "auto" and sys.stderr.isatty())
    first: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper("iso", utc=True, key="time"),
    ]
    last: list[Processor] = (
        [
            # As text from here on: the console's own way to show an error shows the values of variables, too.
            structlog.processors.format_exc_info,
            without_secrets,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), timestamp_key="time"),
        ]
        if human
        else [
            structlog.processors.ExceptionRenderer(
                structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=30)
            ),
            without_secrets,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(),
        ]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=first, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # What the pool does about a lost connection it says at length, and the store says it as well.
    for noisy in ("psycopg.pool", "asyncio"):
        logging.getLogger(noisy).setLevel("ERROR")
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *first,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def without_secrets(_logger: Any, _name: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The last word before a line is written: a slip elsewhere stays a slip, and no leak."""
    return {name: HIDDEN if name in _NEVER else _clean(value) for name, value in line.items()}


def cleaned(text: str) -> str:
    """The text without the secrets that can be told by their looks."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return cleaned(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, Mapping):
        return {key: HIDDEN if key in _NEVER else _clean(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(each) for each in value]
    return value
