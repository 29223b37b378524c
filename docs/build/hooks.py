"""What the site's build makes: a file of every format, and a report to look at."""

import logging
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import files


def on_config(config: Any) -> Any:
    """Every page about an algorithm, whichever there are."""
    # --quiet would keep warnings from being counted, and then nothing is strict.
    log = logging.getLogger("mkdocs")
    log.setLevel(min(log.getEffectiveLevel(), logging.WARNING))
    docs = Path(config["docs_dir"])
    for part in config["nav"]:
        if "Algorithms" in part:
            pages = sorted((docs / "algorithms").glob("*.md"))
            part["Algorithms"] = [{"LBRAC-v": "lbrac_v.md"}] + [
                f"algorithms/{page.name}" for page in pages
            ]
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Results lie beside docs/ in the repository, and within the site."""
    return markdown.replace("](../results/", "](results/")


def on_post_build(config: Any) -> None:
    site = Path(config["site_dir"])
    results = Path(config["docs_dir"]).parent / "results"
    shutil.copytree(results, site / "results", dirs_exist_ok=True)
    files.make(site / "files")
