"""Words of questions and of code, made comparable: identifiers split, endings cut. No word stands for another."""

import re
from functools import lru_cache

_PIECES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_ENDINGS = (
    ("nesses", ""),
    ("ness", ""),
    ("ities", "ity"),
    ("ies", "y"),
    ("ied", "y"),
    ("sses", "ss"),
    ("ings", ""),
    ("ing", ""),
    ("edly", ""),
    ("ed", ""),
    ("s", ""),
)
_ATE = re.compile(r"(?:ations?|ates|ated|ating|ators?|ate)$")

_IRREGULAR = {
    "held": "hold", "kept": "keep", "sent": "send", "built": "build", "ran": "run", "wrote": "write",
    "written": "write", "took": "take", "taken": "take", "chose": "choose", "chosen": "choose", "began": "begin",
    "begun": "begin", "threw": "throw", "thrown": "throw", "caught": "catch", "hidden": "hide", "broke": "break",
    "broken": "break", "drawn": "draw", "bytes": "byte", "indices": "index", "died": "die", "dies": "die",
}  # fmt: skip

_STOPWORDS = """
    a about after all also am an and any anything are as at be because been before being but by can come comes
    could defined did do does doing done each every exactly find for from get gets give given go goes had happen
    happened happens has have having here how i if implement implementation implemented in into is it its just
    know let like live lives look made many may me might much must my no not of off on once one only or other
    our out please place same see she should show so some somebody someone something somewhere such take tell
    than that the their them then there these they thing this those through to too under until up us used uses
    using very was way we were what when where whether which while who whom whose why will with within without
    would you your code codebase repo repository project source tree part say says work
    works explain describe mean means handled handle handles
"""

STOPWORDS = frozenset(_STOPWORDS.split())
"""Words that every question has, or that say nothing about which code is meant."""

_WEAK = "decide decided decides file files function functions method methods class classes module modules line lines"

WEAK = frozenset(_WEAK.split())
"""Words that are mostly about where to look, and now and then about what is looked for."""


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """A word without its ending: `retries`, `retried` and `retry` are one, `caching` and `cache` too."""
    word = word.lower()
    word = _IRREGULAR.get(word, word)
    if len(word) <= 3:
        return word
    ate = _ATE.search(word)
    if ate and ate.start() >= 3:
        # `authorization` and `authorize`; but `creation` and `create`, whose rest would say too little.
        return word[: ate.start()] if ate.start() >= 4 else word[: ate.start()] + "at"
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith(("ss", "us", "is")):
            word = word[: -len(ending)] + instead
            if (
                ending in {"ing", "ings", "ed", "edly"}
                and len(word) > 3
                and word[-1] == word[-2]
                and word[-1] not in "lsz"
            ):
                word = word[:-1]
            break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def pieces(text: str) -> list[str]:
    """The words that a text is made of, in lower case: `HTTPServer.retry_policy2` is http, server, retry, policy, 2."""
    return [piece.lower() for piece in _PIECES.findall(text)]


@lru_cache(maxsize=1 << 15)
def stems(text: str) -> tuple[str, ...]:
    """The stems of the words that a text is made of."""
    return tuple(stem(piece) for piece in pieces(text))
