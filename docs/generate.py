"""Writes the pages of the docs that repeat what the code says. `--check` tells whether they are what it says now.

Comments come from the descriptor set that `proto/generate.py` makes with --include_source_info; tables from the
modules that the server works with; rules from the marks of the tests. Sentences that no code has are in `errors.toml`
and `rules.toml` beside this file.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc import StatusCode
from turnlog_server.domain import access, limits
from turnlog_server.domain.refusals import Reason
from turnlog_server.wire import errors
from turnlog_server.wire.events import IGNORABLE

DOCS: Final = Path(__file__).resolve().parent
ROOT: Final = DOCS.parent
CONTRACT: Final = ROOT / "proto/gen/python/turnlog/contract.binpb"
CODES: Final = {code.value[0]: code.name for code in StatusCode}
Place = tuple[int, ...]  # of an element in its file, as source info names it
HEADER: Final = "<!-- Written by docs/generate.py. Change its sources, then run it again. -->\n\n"


class Contract:
    """The descriptors, and the comment before each element by its full name."""

    def __init__(self, described: FileDescriptorSet) -> None:
        self.messages: dict[str, DescriptorProto] = {}
        self.services: dict[str, list[str]] = {}
        self.comments: dict[str, str] = {}
        for file in described.file:
            self._add(file)

    def _add(self, file: FileDescriptorProto) -> None:
        names: dict[Place, str] = {}
        for m, message in enumerate(file.message_type):
            self._message(names, (4, m), f"{file.package}.{message.name}", message)
        for e, enum in enumerate(file.enum_type):
            for v, value in enumerate(enum.value):
                names[5, e, 2, v] = f"{file.package}.{enum.name}.{value.name}"
        for s, service in enumerate(file.service):
            name = f"{file.package}.{service.name}"
            names[6, s] = name
            self.services[name] = [method.name for method in service.method]
            for r, method in enumerate(service.method):
                names[6, s, 2, r] = f"{name}/{method.name}"
        for location in file.source_code_info.location:
            if name := names.get(tuple(location.path)):
                self.comments[name] = " ".join(location.leading_comments.split())

    def _message(self, names: dict[Place, str], path: Place, name: str, it: DescriptorProto) -> None:
        self.messages[name] = it
        names[path] = name
        for f, field in enumerate(it.field):
            names[(*path, 2, f)] = f"{name}.{field.name}"
        for n, nested in enumerate(it.nested_type):
            self._message(names, (*path, 3, n), f"{name}.{nested.name}", nested)


def pages() -> dict[str, str]:
    """Every generated page by its file's name."""
    contract = Contract(FileDescriptorSet.FromString(CONTRACT.read_bytes()))
    return {
        "errors.md": errors_page(contract),
        "limits.md": limits_page(),
        "permissions.md": permissions_page(contract),
        "events.md": events_page(contract),
        "rules.md": rules_page(),
    }


# -- errors


def errors_page(contract: Contract) -> str:
    """Every reason of a refusal, and what to do."""
    todo = tomllib.loads((DOCS / "errors.toml").read_text("utf-8"))
    sent = reasons_sent()
    rows = []
    for reason, row in errors.TABLE.items():
        if (reason in sent) is not (reason.value in todo):
            raise SystemExit(f"docs/errors.toml: {reason} is {'' if reason in sent else 'not '}sent by the server")
        retry = "yes" if row.retry else ""
        keys = ", ".join(f"`{key}`" for key in row.metadata)
        next_step = todo.get(reason.value, "Reserved: this version never sends it.")
        rows.append((f"`{reason}`", f"`{CODES[row.code]}`", said_of(contract, reason), retry, keys, next_step))
    others = [
        (f"`{name.removeprefix('ERROR_REASON_')}`", contract.comments[f"turnlog.v1.ErrorReason.{name}"])
        for name in reason_names(contract)
        if name.removeprefix("ERROR_REASON_") not in {"UNSPECIFIED", *Reason}
    ]
    return (
        "# Errors\n\n"
        "Every refusal is a gRPC status with exactly one `google.rpc.ErrorInfo` in its details: `domain` is\n"
        f"`{errors.DOMAIN}`, `reason` is a name of the first column, `metadata` may hold the keys shown. Act on the\n"
        "reason; where you do not know it, act on the code. `google.rpc.BadRequest` names the fields of an\n"
        "`INVALID_FIELD`. The message is for people and may change.\n\n"
        "*Wait* is yes where waiting can help: the details then may hold a `google.rpc.RetryInfo` with how long.\n"
        "Whatever failed: a change that is repeated with the same `request_id` and the same fields is carried out at\n"
        "most once.\n\n"
        + table(("Reason", "Code", "What happened", "Wait", "Metadata", "What to do next"), rows)
        + "\nOf the contract's other names, none is ever the reason of a call:\n\n"
        + table(("Reason", "What it says"), others)
    )


def said_of(contract: Contract, reason: Reason) -> str:
    """The contract's comment without what has columns of its own."""
    comment = contract.comments[f"turnlog.v1.ErrorReason.ERROR_REASON_{reason}"]
    return re.sub(r"^[A-Z_]+\. | Metadata: .*$", "", comment)


def reason_names(contract: Contract) -> list[str]:
    """Of every value of ErrorReason."""
    prefix = "turnlog.v1.ErrorReason."
    return [name.removeprefix(prefix) for name in contract.comments if name.startswith(prefix)]


def reasons_sent() -> set[str]:
    """Those that the server names anywhere but in its tables."""
    tables = {ROOT / "server/turnlog_server/domain/refusals.py", ROOT / "server/turnlog_server/wire/errors.py"}
    sources = [path for path in (ROOT / "server").rglob("*.py") if path not in tables]
    text = "\n".join(path.read_text("utf-8") for path in sources)
    return set(re.findall(r"\bReason\.([A-Z_]+)", text)) | {Reason.NOT_FOUND, Reason.INVALID_FIELD}


# -- limits


def limits_page() -> str:
    """Every bound of the contract."""
    rows = [(f"`{each.name}`", quantity(each.name, each.value), each.says) for each in limits.LIMITS]
    return (
        "# Limits\n\n"
        "What is refused, lowered or cut, and where. `ServerService/GetServerInfo` answers the same names and values,\n"
        "so a client need not copy them. A refusal with `LIMIT_EXCEEDED` names the limit, its maximum and what was\n"
        "sent.\n\n"
        + table(("Limit", "Value", "Beyond it"), rows)
        + f"\nA `page_size` of 0 means {limits.PAGE_DEFAULT}, and {limits.LIST_EVENTS_DEFAULT} for `ListEvents`.\n"
        "Limits of single fields, such as the length of a name, are rules in the contract:\n"
        "`grpcurl … describe MESSAGE` shows them.\n"
    )


def quantity(name: str, value: int) -> str:
    """As a person says it."""
    if name.endswith("_bytes"):
        return f"{value // limits.MIB} MiB" if value % limits.MIB == 0 else f"{value // limits.KIB} KiB"
    unit = next((f" {unit}" for unit in ("seconds", "hours") if name.endswith(f"_{unit}")), "")
    return f"{value:,}{unit}"


# -- permissions


def permissions_page(contract: Contract) -> str:
    """Which role may call what."""
    roles = [
        (f"`{role}`", ", ".join(sorted(access.VERBS[role], key=list(access.Verb).index))) for role in named_roles()
    ]
    text = (
        "# Permissions\n\n"
        "A key speaks for one subject, a principal or a service account; a subject has one role in its workspace, or\n"
        "none. Each RPC needs one verb. The server asks in the use case's first line and compares the workspace's\n"
        "permission epoch again in the statement that writes; an open stream whose permission is gone ends.\n\n"
        + table(("Role", "Verbs"), roles)
        + "\nThings of another workspace do not exist for you: NOT_FOUND, the same to the byte as for what never was.\n"
        "`grpc.health.v1.Health` and both `ServerReflection` services need no key; everything else does.\n"
    )
    for service in sorted(contract.services, key=lambda name: (".runner." in name, name)):
        text += f"\n## {service}\n\n{contract.comments[service]}\n\n"
        rows = (permission_row(f"{service}/{method}") for method in contract.services[service])
        text += table(("RPC", "Needs", "On", "Roles"), rows)
    return text


def permission_row(key: str) -> tuple[str, ...]:
    """One RPC."""
    needed = access.PERMISSIONS[key]
    roles = ", ".join(role for role in named_roles() if needed.verb in access.VERBS[role])
    return (f"`{key.partition('/')[2]}`", needed.verb, needed.scope, roles)


def named_roles() -> list[access.Role]:
    """Without NONE."""
    return [role for role in access.Role if role]


# -- events


def events_page(contract: Contract) -> str:
    """The catalogue."""
    arms = [field for field in contract.messages["turnlog.v1.Event"].field if field.HasField("oneof_index")]
    callers = arm_names(contract, "turnlog.v1.AppendEventRequest")
    runners = arm_names(contract, "turnlog.runner.v1.RunnerEvent")
    rows, sections = [], dict[str, str]()
    for arm in arms:
        payload = arm.type_name.lstrip(".")
        writer = "caller" if arm.name in callers else "runner" if arm.name in runners else "server"
        short = payload.rpartition(".")[2]
        link = f"[{short}](#{short.lower()})"
        rows.append((f"`{arm_type(arm.name)}`", str(arm.number), writer, link, "yes" if arm.name in IGNORABLE else ""))
        sections.setdefault(short, payload_section(contract, payload))
    envelope = [field for field in contract.messages["turnlog.v1.Event"].field if not field.HasField("oneof_index")]
    return (
        "# Events\n\n"
        f"{contract.comments['turnlog.v1.Event']}\n\n"
        "A client that meets a type it does not know goes on if the event is *ignorable*. If it is not, the Session\n"
        "cannot be read right without knowing it: stop, and read how it stands by GetSession.\n\n"
        + table(("Type", "Number", "Written by", "Carries", "Ignorable"), rows)
        + "\n## The envelope\n\n"
        + table(("Field", "What it is"), (field_row(contract, "turnlog.v1.Event", f.name) for f in envelope))
        + "".join(sections.values())
    )


def arm_type(arm: str) -> str:
    """`user_message` is `user.message`."""
    return arm.replace("_", ".", 1)


def arm_names(contract: Contract, message: str) -> set[str]:
    """The arms of its `oneof`."""
    return {field.name for field in contract.messages[message].field if field.HasField("oneof_index")}


def payload_section(contract: Contract, name: str) -> str:
    """What one payload carries."""
    rows = [field_row(contract, name, field.name) for field in contract.messages[name].field]
    return f"\n## {name.rpartition('.')[2]}\n\n{contract.comments[name]}\n\n" + table(("Field", "What it is"), rows)


def field_row(contract: Contract, message: str, field: str) -> tuple[str, str]:
    """A field and its comment."""
    return (f"`{field}`", contract.comments[f"{message}.{field}"])


# -- rules


def rules_page() -> str:
    """The rules that tests name."""
    sentences = tomllib.loads((DOCS / "rules.toml").read_text("utf-8"))
    named = dict[str, set[tuple[str, str]]]()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for rule, test in marks(ast.parse(path.read_text("utf-8"))):
            named.setdefault(rule, set()).add((str(path.relative_to(ROOT)), test))
    if unsaid := sorted(named.keys() - sentences.keys()):
        raise SystemExit(f"docs/rules.toml has no sentence for {', '.join(unsaid)}")
    text = (
        "# Rules\n\n"
        "What this version holds, one sentence a rule, and the tests that name it. A rule that no test names is\n"
        "not on this page. Numbers are names and have gaps.\n"
    )
    for rule in sorted(named, key=lambda name: (int(re.sub(r"\D", "", name)), name)):
        text += f"\n**{rule}.** {sentences[rule]}\n\n"
        text += "".join(f"- [{path}](../{path}) {test}\n" for path, test in sorted(named[rule]))
    return text


def marks(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each rule that is named, with the function that names it; a mark of a whole class or module has no function."""

    def walk(node: ast.AST, test: str) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            inner = f"`{child.name}`" if function else test
            if isinstance(child, ast.Call) and ast.unparse(child.func).endswith("mark.rule"):
                yield from ((ast.literal_eval(argument), test) for argument in child.args)
            yield from walk(child, inner)

    return walk(tree, "")


# -- all of them


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """In Markdown."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def main() -> int:
    """Writes, or with --check compares."""
    check = "--check" in sys.argv
    fresh = {DOCS / name: HEADER + text for name, text in pages().items()}
    stale = [path for path, text in fresh.items() if not path.is_file() or path.read_text("utf-8") != text]
    for path in stale:
        if check:
            print(f"not what the code says: {path.relative_to(ROOT)} (run `make generate`)")
        else:
            path.write_text(fresh[path], "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
