"""Files are whole or absent, and what a killed writer leaves is found again."""

import subprocess
import sys
import time

import numpy as np
from safetensors.numpy import load_file

from manyhands.files import atomic_file, save_arrays, sweep
from manyhands.runs import Run

KILLS = 8
WRITER = """
import sys
from pathlib import Path
import numpy as np
from manyhands.files import atomic_file, save_arrays

arrays = {"a": np.ones(5_000_000)}
print("go", flush=True)
while True:
    with atomic_file(Path(sys.argv[1]) / "arrays.safetensors") as temporary:
        save_arrays(temporary, arrays)
"""


def test_a_writer_killed_at_any_moment_leaves_nothing_that_is_not_swept(tmp_path):
    left_behind = 0
    for kill in range(KILLS):
        program = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE
        )
        assert program.stdout is not None
        assert program.stdout.readline() == b"go\n"
        time.sleep(0.02 + 0.03 * kill)
        while kill == KILLS - 1 and not (tmp_path / "arrays.safetensors").exists():
            time.sleep(0.01)  # on a busy machine none may have been written so far
        program.kill()
        program.communicate()
        left_behind += len(list(tmp_path.iterdir()))
        sweep(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} <= {"arrays.safetensors"}
    assert left_behind > 0, "every kill came before the first write"
    assert (load_file(tmp_path / "arrays.safetensors")["a"] == 1).all()


def test_a_writer_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "arrays.safetensors"
    save_arrays(path, {"a": np.arange(3.0)}, {"about": "old"})
    try:
        with atomic_file(path) as temporary:
            save_arrays(temporary, {"a": np.zeros(3)})
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert load_file(path)["a"].tolist() == [0, 1, 2]


def test_a_run_that_begins_leaves_what_others_write_below_alone(tmp_path):
    run, theirs = Run(tmp_path), tmp_path / "other" / "metrics.json"
    with atomic_file(theirs) as temporary:
        run.begin({"a": 1}, same=())
        temporary.write_text("whole")
    assert theirs.read_text() == "whole"

    left = [tmp_path / f"{folder}.b-c.partial.json" for folder in ("", "checkpoints/")]
    (tmp_path / "checkpoints").mkdir()
    for path in left:
        path.touch()
    run.begin({"a": 1}, same=())  # goes on
    assert not any(path.exists() for path in left)
