"""The page says what the figures beside it say, and what failed before anything else."""

import json
from pathlib import Path

from soak.report import page

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOUND = json.loads((DOCS / "soak.json").read_text("utf-8"))


def test_the_page_is_that_of_the_figures_beside_it() -> None:
    assert (DOCS / "soak.md").read_text("utf-8") == page(FOUND)


def test_what_failed_stands_above_the_table() -> None:
    one = FOUND["verdicts"][1] | {"holds": False, "value": 300.0}
    for minutes, excused in ((8.0, True), (60.0, False)):
        above, _, table = page(FOUND | {"minutes": minutes, "verdicts": [one]}).partition("| What |")
        assert f"1 of 1 verdicts fail:**\n\n- {one['says']}: 300 MiB a day, where 256 is the bound." in above
        assert "**no**" in table
        assert ("cannot tell" in above) is excused


def test_a_run_in_which_all_holds_says_so() -> None:
    held = [each for each in FOUND["verdicts"] if each["holds"]]
    assert "Every verdict holds." in page(FOUND | {"verdicts": held})
