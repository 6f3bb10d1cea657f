"""The runner's log: standard logging, as text for people or as JSON lines for machines.

Neither an API key nor a lease token is ever given to it. What a record is about goes into `extra`, so that a machine
finds `run_id` without reading sentences.
"""

import json
import logging
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

_OWN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object a record: time, level, logger, message, and what the record was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its line break."""
        milliseconds = int(record.created % 1 * 1000)
        line: dict[str, Any] = {
            "time": time.strftime(f"%Y-%m-%dT%H:%M:%S.{milliseconds:03d}Z", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _OWN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """One line a record, with the Run that it is about."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, without an exception's text."""
        line = super().formatMessage(record)
        run_id, attempt_no = getattr(record, "run_id", None), getattr(record, "attempt_no", None)
        return f"{line}  ({run_id}, attempt {attempt_no})" if run_id else line


class About(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records are about one thing: what it is goes into every record, beside what the record adds."""

    def __init__(self, logger: logging.Logger, about: Mapping[str, object]) -> None:
        super().__init__(logger, about)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Joins the two; the record's own wins."""
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, kwargs


def configure(*, as_json: bool = False, level: int = logging.INFO) -> None:
    """Sends the runner's records to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logger = logging.getLogger("turnlog.runner")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
