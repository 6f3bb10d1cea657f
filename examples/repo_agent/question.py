"""What a question asks for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from repo_agent.words import STOPWORDS, WEAK, pieces, stem

_NAME = re.compile(r"`([^`\n]{1,200})`|\b([A-Za-z_][\w]*(?:[._][\w]+)+|[A-Za-z]+[a-z0-9]+[A-Z]\w*|_\w+)\b")
_WORD = re.compile(r"[A-Za-z_][\w'-]*|\d+")
_POINTING = re.compile(r"\b(it|its|that|this|they|them|there|those|these)\b", re.IGNORECASE)

_VALUE = re.compile(
    r"\bhow (long|many|much|large|big|often|far|fast|deep|old)\b|\bdefaults?\b|\bwhat (is|are) the (\w+ )?"
    r"(longest|largest|biggest|smallest|shortest|highest|lowest|limit"
    r"|maximum|minimum|max|min|timeout|size|value|number|port|interval|bound|name of)\b|\b(which|what) "
    r"(port|version|value|number|status|code|unit|header|flag|variable|environment variable)\b"
    r"|\bat most\b|\bat least\b",
    re.IGNORECASE,
)
_USES = re.compile(
    r"\bwho (calls?|uses?)\b|\bcallers? of\b|\busages? of\b|\breferences? to\b"
    r"|\bwhere (is|are) .{1,200} (used|called|referenced)\b|\bwhat calls\b",
    re.IGNORECASE,
)
# What a question for uses is made of, and no part of what is used.
_CALLING = frozenset(stem(word) for word in ("call", "caller", "usage", "use", "reference"))
_WHERE_TO_LOOK = re.compile(r"\b(which|what) (file|line|function|method|class|module)s?\b", re.IGNORECASE)
_WHY = re.compile(r"\bwhy\b|\breasons? (for|why|that)\b|\bwhat for\b", re.IGNORECASE)
_EXTREME = re.compile(
    r"\bwhat (is|are) the (\w+ )?"
    r"(longest|largest|biggest|smallest|shortest|highest|lowest|limit|maximum|minimum|max|min)\b",
    re.IGNORECASE,
)
_QUANTITY = re.compile(r"\bhow (long|many|much|large|big|often|far|fast|deep|old)\b", re.IGNORECASE)

# What the name of a value says about its unit, by the word that asks for it.
_UNITS = {
    "long": "seconds second timeout interval delay ms millis minutes ttl duration age grace patience",
    "often": "interval period poll seconds every rate",
    "old": "age seconds ttl days",
    "fast": "rate interval seconds",
    "large": "bytes size max limit kib mib",
    "big": "bytes size max limit kib mib",
    "many": "max limit count attempts number size entries",
    "much": "max limit amount budget size bytes",
    "deep": "depth levels max",
    "far": "distance offset max",
}

# Beyond this a question is a text: its first words say what it is about.
_MAX_TERMS = 24
_MAX_TEXT = 4_000


class Intent(Enum):
    """The kind of answer that is wanted."""

    PLACE = "place"
    VALUE = "value"
    USES = "uses"
    WHY = "why"
    OVERVIEW = "overview"


@dataclass(frozen=True, slots=True)
class Term:
    """One word that is looked for.

    stem: as `words.stem` gives it. word: as it was written. weight: what it counts; 1 for a plain word.
    specific: a name, or a word in capitals: what it names must be there for an answer to be one.
    """

    stem: str
    word: str
    weight: float = 1.0
    specific: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """A question taken apart.

    names: identifiers as they were written, such as `RetryPolicy.delay`. units: stems that the name of a value is
    likely to have if it answers "how long", "how large" and the like.
    """

    text: str
    intent: Intent
    terms: tuple[Term, ...]
    names: tuple[str, ...] = ()
    units: frozenset[str] = frozenset()


def parse(text: str, earlier: Sequence[str] = ()) -> Question:
    """Takes a question apart.

    earlier: what the same person asked before, oldest first; a question that only points ("and who calls it?") is about
    what the one before was about.
    """
    text = text[:_MAX_TEXT]
    names = tuple(dict.fromkeys((match[1] or match[2]).strip("`() ") for match in _NAME.finditer(text)))
    terms: dict[str, Term] = {}
    asked = [match[1].lower() for match in _QUANTITY.finditer(text)]
    measured = [*asked, *(["large", "long"] if _EXTREME.search(text) else [])]
    units = frozenset(stem(unit) for word in measured for unit in _UNITS[word].split())
    # The first word of a sentence is in capitals for no reason of its own.
    begins = {match.end() for match in re.finditer(r"(?:^|[.?!:]\s+)[^\w]*", text)}
    in_names = {stem(piece) for name in names for piece in pieces(name)}
    for match in _WORD.finditer(_WHERE_TO_LOOK.sub(lambda found: " " * len(found[0]), text)):
        word = match[0].removesuffix("'s")
        if (word.lower() in STOPWORDS or word.lower() in asked) and stem(word) not in in_names:
            continue
        for piece in pieces(word):
            key = stem(piece)
            named = key in in_names
            if (piece in STOPWORDS and not named) or (len(piece) < 2 and not piece.isdigit()) or key in terms:
                continue
            if key in _CALLING and not named and _USES.search(text):
                continue
            capital = word[:1].isupper() and match.start() not in begins
            weight = 1.6 if named else 1.2 if capital else 0.4 if piece in WEAK else 1.0
            terms[key] = Term(key, word if len(pieces(word)) == 1 else piece, weight, named or capital)
    if all(term.word in WEAK for term in terms.values()):
        terms.clear()
    kept = tuple(list(terms.values())[:_MAX_TERMS])
    if earlier and len(kept) <= 2 and _POINTING.search(text):
        before = parse(earlier[-1], earlier[:-1])
        more = tuple(Term(each.stem, each.word, each.weight * 0.7) for each in before.terms if each.stem not in terms)
        return Question(text, _intent(text, (*kept, *more)), (*kept, *more), names or before.names, units)
    return Question(text, _intent(text, kept), kept, names, units)


def _intent(text: str, terms: Sequence[Term]) -> Intent:
    if not terms:
        return Intent.OVERVIEW
    if _USES.search(text):
        return Intent.USES
    if _VALUE.search(text):
        return Intent.VALUE
    if _WHY.search(text):
        return Intent.WHY
    return Intent.PLACE
