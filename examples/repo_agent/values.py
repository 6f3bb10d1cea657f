"""Questions for a value: which constant or default is meant, and what it is."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from repo_agent.question import Question
from repo_agent.ranking import SELDOM, Corpus, Hit, is_generated, kind_factor
from repo_agent.reading import Place
from repo_agent.words import stems

# A name at the margin, or one level in, that is given something with a number or a text in it.
_SET = re.compile(
    r"^(?P<indent>[ \t]{0,4})(?:(?:export|const|let|var|pub|static|final|public|private|readonly|#define)\s+)*"
    r"(?P<name>[A-Za-z_]\w*)(?:\s*:\s*[\w\[\]., |]+?)?(?:\s*:?=\s*|\s+(?=\d))(?P<value>\S.*)$"
)
_LITERAL = re.compile(r"\d|\"[^\"]+\"|'[^']+'")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_NUMBER = re.compile(r"\d")
_COMMENT = re.compile(r"\s*(?:#|//|\*|/\*|--|\"\"\")")
_LOOKED_AT = 6


@dataclass(frozen=True, slots=True)
class Value:
    """A name that has a value. share: 0 to about 1, how much of the question speaks for it."""

    place: Place
    name: str
    share: float


def values(question: Question, corpus: Corpus, hits: Sequence[Hit]) -> list[Value]:
    """Constants and defaults that may be asked for, likeliest first.

    What speaks for one is its name, what is written beside it, its unit, and that the places that match use it.
    """
    rarity = {term.stem: corpus.rarity(term) for term in question.terms}
    everything = sum(rarity.values())
    if not everything:
        return []
    leaning = [(hit.score / hits[0].score, _body(corpus, hit)) for hit in hits[:_LOOKED_AT]]
    # "How long" is answered by a number only.
    literal = _NUMBER if question.units else _LITERAL
    found: list[Value] = []
    for path, text in corpus.texts.items():
        lines = text.split("\n")
        factor = SELDOM if is_generated(text) else kind_factor(path, question)
        on_path = set(stems(path))
        for index, line in enumerate(lines):
            match = _SET.match(line) if len(line) <= 400 else None
            if (
                not match
                or not literal.search(_QUOTED.sub("", match["value"]) if question.units else match["value"])
                or _looks_local(lines, index, match["indent"])
            ):
                continue
            name = match["name"]
            named, beside = set(stems(name)), _beside(lines, index)
            speaks = 0.0
            for term in question.terms:
                if term.stem in named:
                    speaks += rarity[term.stem]
                elif term.stem in beside:
                    speaks += 0.6 * rarity[term.stem]
                elif term.stem in on_path:
                    speaks += 0.25 * rarity[term.stem]
            share = speaks / everything
            if share == 0:
                continue
            used = max((part for part, body in leaning if re.search(rf"\b{name}\b", body)), default=0.0)
            share += 0.35 * used + 0.2 * bool(named & question.units) + 0.05 * name.isupper()
            found.append(Value(Place(path, index + 1, line.strip()), name, share * factor))
    found.sort(key=lambda value: (-value.share, str(value.place)))
    return found


def _body(corpus: Corpus, hit: Hit) -> str:
    lines = corpus.texts[hit.block.path].split("\n")
    return "\n".join(lines[hit.block.first - 1 : hit.block.last])


def _looks_local(lines: Sequence[str], index: int, indent: str) -> bool:
    """Whether an indented line is in the body of a function, and not a field of a class or a group of constants."""
    if not indent:
        return False
    for above in reversed(lines[max(0, index - 40) : index]):
        if above.strip() and not above.startswith((" ", "\t", ")")):
            return re.match(r"(async\s+def|def|func|fn|function|if|for|while|with|try|else)\b", above) is not None
    return False


def _beside(lines: Sequence[str], index: int) -> set[str]:
    """The words of the comment above, at the end of, or the docstring below a line."""
    words = set(stems(lines[index].partition("#")[2])) | set(stems(lines[index].partition("//")[2]))
    for above in reversed(lines[max(0, index - 3) : index]):
        if not _COMMENT.match(above):
            break
        words |= set(stems(above))
    for below in lines[index + 1 : index + 3]:
        if below.strip().startswith(('"""', "///")):
            words |= set(stems(below))
    return words
