"""What the site's build makes: a file of every format, and a report to look at."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import files


def on_config(config: Any) -> Any:
    """Every page about an algorithm, whichever there are."""
    docs = Path(config["docs_dir"])
    for part in config["nav"]:
        if "Algorithms" in part:
            pages = sorted((docs / "algorithms").glob("*.md"))
            part["Algorithms"] = [{"LBRAC-v": "lbrac_v.md"}] + [
                f"algorithms/{page.name}" for page in pages
            ]
    return config


def on_post_build(config: Any) -> None:
    files.make(Path(config["site_dir"]) / "files")
