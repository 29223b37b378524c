"""Runs as a page is asked for them, and what a page holds."""

import json
import shutil
from pathlib import Path
from typing import Any

# As bad as they may come: the page must show them, and no more.
NAMES = ("left & <b>fast</b>", "</script><script>throw Error('escaped')</script>")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def content_of(page: Path) -> dict[str, Any]:
    text = page.read_text().partition('id="data">')[2].partition("</script>")[0]
    return json.loads(text)


def moved(folder: Path, name: str, to: Path) -> Path:
    """A run that has lost what it was made from."""
    pages = shutil.ignore_patterns("report.html", "figures")
    shutil.copytree(folder / name, to / name, ignore=pages)
    config = read_json(to / name / "config.json")
    for key in ("loaded_from", "behavior_run"):
        config.pop(key, None)
    (to / name / "config.json").write_text(json.dumps(config))
    return to / name
