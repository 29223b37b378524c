"""One small data set in every format, the report of a fit to it, and that of a
benchmark.

Usage: python docs/build/files.py FOLDER   (a minute on two cores)
"""

import shutil
import sys
import tempfile
from pathlib import Path

import manyhands as mh
from manyhands.sweep import page, results

STEPS = 2000
RESULTS = Path(__file__).parents[2] / "results"
# By name of the file to download: where `mh.save` writes it.
FORMATS = {
    "fork-3.npz": "npz:fork-3.npz",
    "fork-3-d4rl.hdf5": "d4rl:fork-3-d4rl.hdf5",
    "fork-3-robomimic.hdf5": "robomimic:fork-3-robomimic.hdf5",
    "fork-3-lerobot.zip": "lerobot:fork-3-lerobot",
    "fork-3-minari.zip": "minari:fork-3-minari",
}


def make(folder: Path, transitions: int = 6000, steps: int = STEPS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    data = mh.make("fork-3", transitions)
    for name, spec in FORMATS.items():
        prefix, _, where = spec.partition(":")
        mh.save(data, f"{prefix}:{folder / where}")
        if name.endswith(".zip"):
            shutil.make_archive(str(folder / where), "zip", folder / where)
            shutil.rmtree(folder / where)
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "fork-3"
        mh.fit(data, k="auto", steps=steps, out=run, compare=True)
        mh.write_report(run, folder / "report.html", data)
    name = "heterogeneous"
    page.write(results.read(RESULTS / name), name, folder / "benchmark.html")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
