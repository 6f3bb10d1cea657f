"""What stands at a place: an excerpt, the sentence that documents it, where a name is defined and used."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from repo_agent.blocks import definitions

MAX_EXCERPT_LINES = 14
_MAX_LINE = 160


@dataclass(frozen=True, slots=True)
class Place:
    """One line of a file, as it is cited."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


_COMMENT = re.compile(r"\s*(?:#(?![!#])|//|/\*|\*(?!\*)|--\s)")
_QUOTES = re.compile(r"\"\"\"|'''")


def prose(lines: Sequence[str]) -> list[bool]:
    """For each line whether it is written for people: a comment, or part of a docstring."""
    told: list[bool] = []
    # Within a text of several lines: whether it is a docstring, and no value such as a statement of SQL.
    inside: bool | None = None
    for line in lines:
        begins = line.lstrip().lstrip("rRbBuU").startswith(('"""', "'''"))
        told.append((begins or _COMMENT.match(line) is not None) if inside is None else inside)
        if len(_QUOTES.findall(line)) % 2:
            inside = begins if inside is None else None
    return told


def samples(lines: Sequence[str]) -> list[bool]:
    """For each line of a document whether it is in a fence: a sample, which repeats words and explains none."""
    told: list[bool] = []
    fence = ""
    for line in lines:
        mark = line.lstrip()[:3]
        opens = not fence and mark in {"```", "~~~"}
        told.append(bool(fence) or opens)
        fence = mark if opens else "" if mark == fence else fence
    return told


def excerpt(lines: Sequence[str], first: int, last: int) -> str:
    """Lines `first` to `last` with their numbers. Lines that no person would read to the end are cut."""
    width = len(str(last))
    return "\n".join(
        f"{number:>{width}} | {line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 1] + '…'}".rstrip()
        for number, line in enumerate(lines[first - 1 : last], first)
    )


def window(first: int, last: int, focus: int, size: int = MAX_EXCERPT_LINES) -> tuple[int, int]:
    """The part of a block to show: its head if the line in focus is near it, else what is around that line."""
    if last - first < size or focus - first < size - 3:
        return first, min(last, first + size - 1)
    begin = max(first, focus - size // 2)
    return begin, min(last, begin + size - 1)


def documented(lines: Sequence[str], line: int) -> str:
    """The first sentence of what is written about a definition: its docstring, or the comment above it. Or nothing."""
    below = "\n".join(lines[line - 1 : line + 12])
    match = re.search(
        r'^[^\n]*(?:\n(?!\s*(?:def|class|return)\b)[^\n"]*){0,8}\n?\s*[rRbBuU]?"""(.*?)(?:"""|\Z)', below, re.DOTALL
    )
    if match:
        return _sentence(match[1])
    comments: list[str] = []
    for above in reversed(lines[max(0, line - 9) : line - 1]):
        mark = re.match(r"\s*(?:#(?!!)|//+|/\*+|\*+|--)\s?(.*)", above)
        if not mark:
            break
        comments.append(mark[1].removesuffix("*/").strip())
    return _sentence(" ".join(reversed(comments)))


def said_at(lines: Sequence[str], line: int) -> str:
    """What the comment or the paragraph around a line says, in one text, or nothing if the line is code."""
    mark = re.compile(r"\s*(?:#(?![!#])|//+|/\*+|\*(?!\*)|--|[rRbBuU]?\"\"\")\s?(.*)")
    if not mark.match(lines[line - 1]):
        return ""
    first = last = line
    while first > 1 and line - first < 8 and mark.match(lines[first - 2]):
        first -= 1
    while last < len(lines) and last - line < 8 and mark.match(lines[last]):
        last += 1
    said = [match[1] for text in lines[first - 1 : last] if (match := mark.match(text))]
    return " ".join(" ".join(said).replace('"""', "").removesuffix("*/").split())[:400]


def paragraph_at(lines: Sequence[str], line: int) -> str:
    """The paragraph of a document around a line, in one text."""
    first = last = line
    while first > 1 and line - first < 6 and lines[first - 2].strip():
        first -= 1
    while last < len(lines) and last - line < 6 and lines[last].strip():
        last += 1
    # The items of a list and the rows of a table stand for themselves.
    if any(re.match(r"\s*([-*|]|\d+\.)\s", text) for text in lines[first - 1 : last]):
        first = last = line
    text = " ".join(" ".join(lines[first - 1 : last]).split())
    return text if len(text) <= 400 else text[:399] + "…"


def defined_at(name: str, texts: Mapping[str, str]) -> list[Place]:
    """Where something of this name is defined or given its value: definitions first, then assignments."""
    last = re.split(r"[.:]+", name)[-1]
    owner = name[: -len(last)].rstrip(".:")
    word = re.compile(
        rf"^\s*(?:(?:const|let|var|final|static|public|private|export|#define|self\.)\s*)*{re.escape(last)}\s*(?::[^=\n]+)?:?=(?!=)"
    )
    found: list[tuple[int, Place]] = []
    for path, text in texts.items():
        if last not in text:
            continue
        lines = text.split("\n")
        owners = {owner} if not owner else {each.name for each in definitions(path, lines)} & {owner.rpartition(".")[2]}
        for each in definitions(path, lines):
            if each.name.rpartition(".")[2] == last:
                found.append((0 if owners else 2, Place(path, each.line, lines[each.line - 1].strip())))
        for number, line in enumerate(lines, 1):
            if last in line and len(line) < 2_000 and word.match(line):
                # A constant stands at the margin; a local variable of the same name says less.
                found.append((1 if not line[:1].isspace() else 3, Place(path, number, line.strip())))
    found.sort(key=lambda each: each[0])
    return [place for _, place in found]


def used_at(name: str, texts: Iterable[tuple[str, str]], limit: int = 12) -> list[Place]:
    """Where a name occurs, but for its definition: at most `limit` places."""
    last = re.split(r"[.:]+", name)[-1]
    word = re.compile(rf"(?<![\w]){re.escape(last)}(?![\w])")
    defining = re.compile(
        rf"^\s*(?:async\s+)?(?:def|class|func|fn|type|function|interface|struct)\b.*\b{re.escape(last)}\b"
    )
    found: list[Place] = []
    for path, text in texts:
        if last not in text:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if word.search(line) and not defining.match(line) and not line.lstrip().startswith(("#", "//", "*")):
                found.append(Place(path, number, line.strip()[:_MAX_LINE]))
    # A use says more than the import that it needs.
    found.sort(key=lambda place: place.text.startswith(("import ", "from ", "use ", "#include")))
    return found[:limit]


def constants_in(line: str) -> list[str]:
    """Names in capitals that a line leans on: `due + LEASE_SECONDS` leans on LEASE_SECONDS."""
    return list(
        dict.fromkeys(re.findall(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b|\b(?:max|min|default|first|longest)[A-Z]\w+\b", line))
    )


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    match = re.match(r"(.{4,240}?[.!?])(?:\s|$)", text)
    return (match[1] if match else text[:240]).strip()
