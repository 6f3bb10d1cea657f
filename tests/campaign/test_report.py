"""What the guarantees page says of campaigns is what `runs.json` has."""

import json

from campaign.report import PAGE, RUNS, page_with


def test_the_page_has_the_recorded_runs() -> None:
    page = PAGE.read_text()
    assert page == page_with(page, json.loads(RUNS.read_text())), "run tests/campaign/report.py"
