"""What every answer has to be: of a documented kind, with the details that docs/errors.md promises, and discreet."""

import re
from dataclasses import dataclass
from pathlib import Path

import grpc
from google.rpc import error_details_pb2, status_pb2

ROOT = Path(__file__).parents[2]
DETAILS = "grpc-status-details-bin"
MESSAGE_BYTES = 1024
_TICKED = re.compile(r"`([\w.]+)`")
# What tells of the inside: statements, paths, classes, addresses. Case counts, since callers' own text may be quoted.
_INSIDE = re.compile(
    r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|SQLSTATE|psycopg|asyncpg|Traceback|site-packages|turnlog_server|"
    r"google\.protobuf\.\w+_pb2)\b|\w+(Error|Exception)\b|\.py\b|\bobject at 0x|/(usr|work|home|tmp|opt|lib)/"
)
# What a healthy server on a healthy database has no cause to say.
UNCALLED_FOR = {"INTERNAL", "STORE_UNAVAILABLE", "OUTCOME_UNKNOWN", "SERVER_DRAINING"}
# What it may well say to a caller whose deadline passes: a commit was under way, or a connection was being replaced.
SAID_IN_HASTE = {"", "STORE_UNAVAILABLE", "OUTCOME_UNKNOWN"}


@dataclass(frozen=True)
class Row:
    """A reason as it is documented."""

    code: str
    waits: bool
    metadata: frozenset[str]


def documented() -> dict[str, Row]:
    """The table of docs/errors.md."""
    rows = {}
    for line in (ROOT / "docs" / "errors.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and cells[0].startswith("`"):
            reason, code, _, wait, metadata, _ = cells
            rows[reason.strip("`")] = Row(code.strip("`"), wait == "yes", frozenset(_TICKED.findall(metadata)))
    return rows


REASONS = documented()
assert len(REASONS) > 20


class Answer:
    """How a call ended. `fault` says what is wrong with that, empty where nothing is."""

    def __init__(self, code: grpc.StatusCode, message: str, details: bytes | None) -> None:
        self.code = code
        self.message = message
        self.reason = ""
        self.fault = self._fault(details)

    def _fault(self, details: bytes | None) -> str:
        if self.code is grpc.StatusCode.OK:
            return ""
        if self.code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
            return f"{self.code.name}: {self.message[:300]}"
        if details is None:
            return f"{self.code.name} without details: {self.message[:300]}"
        return self._details_fault(status_pb2.Status.FromString(details))

    def _details_fault(self, status: status_pb2.Status) -> str:
        infos: list[error_details_pb2.ErrorInfo] = []
        said = [self.message]
        others = set()
        for detail in status.details:
            info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
            if detail.Unpack(info):
                infos.append(info)
                said.extend(info.metadata.values())
            else:
                others.add(detail.type_url.rpartition(".")[2])
                if detail.Unpack(bad):
                    said.extend(f"{each.field} {each.description}" for each in bad.field_violations)
        if len(infos) != 1:
            return f"{len(infos)} ErrorInfo"
        info = infos[0]
        self.reason = info.reason
        row = REASONS.get(info.reason)
        if row is None or info.domain != "turnlog.dev":
            return f"a reason that is not documented: {info.domain} {info.reason}"
        if (row.code, status.code, status.message) != (self.code.name, self.code.value[0], self.message):
            return f"status and details disagree: {self.code} {self.message[:100]!r} {info.reason} {status.code}"
        return self._manners_fault(row, info, others, said)

    def _manners_fault(self, row: Row, info: error_details_pb2.ErrorInfo, others: set[str], said: list[str]) -> str:
        if self.reason in UNCALLED_FOR:
            return f"{self.reason}: {self.message[:300]}"
        if not info.metadata.keys() <= row.metadata:
            return f"{self.reason} with metadata that is not documented: {dict(info.metadata)}"
        if "RetryInfo" in others and not row.waits:
            return f"{self.reason} with a RetryInfo"
        if "BadRequest" in others and self.reason != "INVALID_FIELD":
            return f"{self.reason} with a BadRequest"
        if not 0 < len(self.message.encode()) <= MESSAGE_BYTES:
            return f"{self.reason} with a message of {len(self.message)}"
        for text in said:
            if inside := _INSIDE.search(text):
                return f"{self.reason} tells of the inside, {inside[0]!r}: {text[:300]}"
        return ""


def of_error(error: grpc.aio.AioRpcError) -> Answer:
    """How a call that was raised ended."""
    raw = dict(error.trailing_metadata() or ()).get(DETAILS)
    return Answer(error.code(), error.details() or "", raw if isinstance(raw, bytes) else None)
