"""Source text in blocks: a function, a class's head, a section of a document, or a run of lines."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

MAX_BLOCK_LINES = 48
_OVERLAP = 8

_PYTHON = re.compile(r"^(\s*)(?:async\s+)?(def|class)\s+(\w+)")
_GO = re.compile(r"^()(func|type)\s+(?:\([^)]*?\*?(\w+)(?:\[[^\]]*\])?\)\s*)?(\w+)")
_SCRIPT = re.compile(
    r"^(\s*)(?:export\s+)?(?:default\s+)?(?:async\s+)?(function\*?|class|interface|type|enum)\s+(\w+)"
    r"|^(\s*)(?:export\s+)?(?:const|let|var)\s+(\w+)\s*=\s*(?:async\s*)?(?:\(|function|\w+\s*=>)"
)
_CURLY = re.compile(
    r"^(\s*)(?:(?:pub|public|private|protected|internal|static|final|abstract|async|unsafe|export|override|inline|extern"
    r"|virtual|const)(?:\([^)]*\))?\s+)*(fn|struct|enum|trait|impl|class|interface|record|namespace|mod|service|message|rpc"
    r"|fun|object)\s+(\w+)"
)
_CALLABLE = re.compile(r"^(\s*)(?:[\w<>\[\],.*&:?]+\s+)+[*&]?(\w+)\s*\([^;]*$")
_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*$")
_SHELL = re.compile(r"^(\s*)(?:function\s+)?(\w[\w-]*)\s*\(\)\s*\{?|^([A-Za-z][\w.-]*):(?:\s|$)")

_KEYWORDS = frozenset(
    {"if", "for", "while", "switch", "return", "catch", "else", "match", "with", "do", "new", "sizeof"}
)


@dataclass(frozen=True, slots=True)
class Block:
    """Lines `first` to `last`, from 1, both included.

    symbol: the qualified name of what is defined here, such as `Queue.claim`, empty for a run of lines.
    at: the line of its definition, which may be before `first` in a piece of a long block; 0 for a run of lines.
    """

    path: str
    first: int
    last: int
    symbol: str
    at: int = 0


@dataclass(frozen=True, slots=True)
class Definition:
    """Where something is defined. indent: columns before it, which is how blocks nest."""

    line: int
    name: str
    indent: int


def definitions(path: str, lines: list[str]) -> list[Definition]:
    """What a file defines, in order, as far as it can be seen without parsing."""
    find = _finder(path)
    if find is None:
        return []
    found: list[Definition] = []
    fenced = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        # Minified text and data have lines that no person wrote.
        if fenced or len(line) > 400:
            continue
        match = find(line)
        if match:
            found.append(Definition(number, match[0], match[1]))
    return found


def blocks_of(path: str, lines: list[str]) -> list[Block]:
    """A file in blocks that cover all its lines. Long ones are cut into overlapping pieces of the same symbol."""
    blocks: list[Block] = []
    starts = definitions(path, lines)
    nested: list[Definition] = []
    first, symbol, at = 1, "", 0
    for definition in starts:
        begin = _with_what_is_above(lines, definition.line, first)
        _add(blocks, path, first, begin - 1, symbol, at)
        while nested and nested[-1].indent >= definition.indent:
            nested.pop()
        symbol = ".".join([*(each.name for each in nested), definition.name])
        nested.append(definition)
        first, at = begin, definition.line
    _add(blocks, path, first, len(lines), symbol, at)
    return blocks


def _add(blocks: list[Block], path: str, first: int, last: int, symbol: str, at: int) -> None:
    while first <= last:
        end = min(last, first + MAX_BLOCK_LINES - 1)
        blocks.append(Block(path, first, end, symbol, at))
        if end == last:
            return
        first = end + 1 - _OVERLAP


def _with_what_is_above(lines: list[str], line: int, floor: int) -> int:
    """The first line of the comments and decorators that stand right above a definition."""
    begin = line
    while begin > floor and re.match(r"\s*(#(?!#)|//|/?\*|@|\[\w|--|\"\"\"\w)", lines[begin - 2]):
        begin -= 1
    return begin


@lru_cache(maxsize=64)
def _language(ending: str) -> str:
    table = {
        "python": "py pyi pyx",
        "go": "go",
        "script": "js jsx ts tsx mjs cjs",
        "curly": "rs java kt cs proto swift scala php",
        "c": "c h cc cpp hpp cxx m",
        "heading": "md markdown rst mdx",
        "shell": "sh bash zsh mk",
    }
    return next((language for language, endings in table.items() if ending in endings.split()), "")


def _finder(path: str) -> Callable[[str], tuple[str, int] | None] | None:
    name = path.rpartition("/")[2]
    language = _language(name.rpartition(".")[2].lower()) if "." in name else ("shell" if name == "Makefile" else "")
    return {
        "python": _in_python,
        "go": _in_go,
        "script": _in_script,
        "curly": _in_curly,
        "c": _in_c,
        "heading": _in_document,
        "shell": _in_shell,
    }.get(language)


def _in_python(line: str) -> tuple[str, int] | None:
    match = _PYTHON.match(line)
    return (match[3], len(match[1])) if match else None


def _in_go(line: str) -> tuple[str, int] | None:
    match = _GO.match(line)
    if not match:
        return None
    return (f"{match[3]}.{match[4]}" if match[3] else match[4], 0)


def _in_script(line: str) -> tuple[str, int] | None:
    match = _SCRIPT.match(line)
    if match:
        return (match[3], len(match[1])) if match[3] else (match[5], len(match[4]))
    return _in_c(line) if line.rstrip().endswith("{") else None


def _in_curly(line: str) -> tuple[str, int] | None:
    match = _CURLY.match(line)
    return (match[3], len(match[1])) if match else _in_c(line)


def _in_c(line: str) -> tuple[str, int] | None:
    match = _CURLY.match(line)
    if match:
        return match[3], len(match[1])
    match = _CALLABLE.match(line)
    if match and match[2] not in _KEYWORDS and line.split()[0] not in _KEYWORDS:
        return match[2], len(match[1])
    return None


def _in_document(line: str) -> tuple[str, int] | None:
    match = _HEADING.match(line)
    return (match[2].strip("`* "), len(match[1])) if match else None


def _in_shell(line: str) -> tuple[str, int] | None:
    match = _SHELL.match(line)
    return (match[2] or match[3], 0) if match else None
