"""Running text on a screen that has a width: a line ends before the word that does not fit, and not inside it."""

from __future__ import annotations

import re

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_PIECES = re.compile(r"\n|[^\S\n]+|\S+")
_HANG = 2


class Flow:
    """Only ever appends. What has no width, such as a pipe or a file, gets the text as it is."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._column = 0
        self._lead = 0
        self._gap = ""
        self._held = ""

    def write(self, text: str, style: str = "", *, more: bool = False) -> None:
        """Adds text. more: there is more to come, so that its last word may not be whole yet and waits for the rest."""
        if not self._console.is_terminal:
            self._print(text, style)
            return
        text, self._held = self._held + text, ""
        if more and (tail := re.search(r"\S+\Z", text)):
            self._held, text = tail[0], text[: tail.start()]
        self._print("".join(map(self._placed, _PIECES.findall(text))), style)

    def end_line(self) -> None:
        """Ends the line, with the word that waited."""
        if self._held:
            self.write("")
        self._print("\n", "")
        self._column, self._lead, self._gap = 0, 0, ""

    def _placed(self, piece: str) -> str:
        """What the piece adds to the screen. Space is held back until it is known what it stands before."""
        if piece == "\n":
            self._column, self._lead, self._gap = 0, 0, ""
            return piece
        if piece.isspace():
            self._gap += piece
            return ""
        if not self._column:
            # What a line begins with, the lines that it is broken into begin with, too.
            self._lead = cell_len(self._gap.expandtabs()) or _HANG
        gap, self._gap = self._gap.expandtabs(), ""
        if self._column > self._lead and self._column + cell_len(gap + piece) > self._console.width:
            self._column = self._lead + cell_len(piece)
            return "\n" + " " * self._lead + piece
        self._column += cell_len(gap + piece)
        return gap + piece

    def _print(self, text: str, style: str) -> None:
        if text:
            self._console.print(Text(text, style), end="")
            self._console.file.flush()
