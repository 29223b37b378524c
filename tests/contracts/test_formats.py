"""What every file format must do."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from manyhands import Trajectories, UserError, load, save
from manyhands.data import formats

PLACES = {
    "d4rl": "set.hdf5",
    "npz": "set.npz",
    "robomimic": "set.hdf5",
    "lerobot": "set",
    "minari": "./set-v0",
}


@pytest.fixture(params=formats.FORMATS)
def place(request, tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    return f"{request.param}:{PLACES[request.param]}"


def variants(small: Trajectories) -> dict[str, Trajectories]:
    bare = Trajectories.from_arrays(
        observations=small.observations,
        actions=small.actions / 3,
        rewards=small.rewards,
        terminals=small.terminals,
        trajectory=small.trajectory,
        name="bare",
    )
    return {"everything": small, "bare": bare, "one trajectory": small[1]}


@pytest.mark.parametrize("variant", ["everything", "bare", "one trajectory"])
def test_round_trip_keeps_everything(place, small, variant):
    data = variants(small)[variant]
    save(data, place)
    again = load(place)
    for field in ("observations", "actions", "rewards", "next_observations"):
        assert np.array_equal(getattr(again, field), getattr(data, field)), field
    for field in ("terminals", "timeouts", "offsets", "final_known"):
        assert np.array_equal(getattr(again, field), getattr(data, field)), field
    if data.sources is not None:
        assert [again.source_names[s] for s in again.sources] == [
            data.source_names[s] for s in data.sources
        ]
    if len(data) == len(small):  # a selection may name sources that it does not hold
        assert again.fingerprint == data.fingerprint


def test_the_format_is_recognised_from_the_content(place, small):
    save(small, place)
    where = place.partition(":")[2]
    assert formats.detect(formats.Path(where)) == place.partition(":")[0]
    assert load(where).fingerprint == small.fingerprint


def test_writing_again_replaces_and_leaves_nothing_else(place, small, tmp_path):
    save(small[:2], place)
    save(small, place)
    assert load(place).transitions == small.transitions
    where = place.partition(":")[2].removeprefix("./")
    assert [p.name for p in tmp_path.iterdir() if p.name != "store"] == [where]


class DiskFull:
    """Fails in the middle of any writer: all write something else before it."""

    def __len__(self):
        return 10

    def __getitem__(self, key):
        raise OSError("disk full")

    def __getattr__(self, name):
        raise OSError("disk full")


def test_a_failing_write_leaves_the_old_file(place, small, tmp_path):
    save(small[:2], place)
    broken = replace(small)
    object.__setattr__(broken, "rewards", DiskFull())
    with pytest.raises(OSError, match="disk full"):
        save(broken, place)
    assert len(load(place)) == 2
    assert len([p for p in tmp_path.iterdir() if p.name != "store"]) == 1


def test_an_option_the_format_does_not_have_is_refused(place, small):
    save(small, place)
    name = place.partition(":")[0]
    unknown = "filter" if name != "robomimic" else "max_steps"
    with pytest.raises(UserError, match=f"{name} data has no option {unknown}"):
        load(place, **{unknown: 3 if unknown == "max_steps" else "x"})


def test_what_is_not_there_is_one_clear_error(place):
    with pytest.raises(UserError, match="set"):
        load(place)


WRITER = """
import sys, numpy as np, manyhands as mh
n = 400_000
data = mh.Trajectories.from_arrays(
    np.random.default_rng(0).normal(size=(n, 8)), np.zeros((n, 2)), np.ones(n),
    np.zeros(n), trajectory=np.arange(n) // 1000)
print("go", flush=True)
for _ in range(100):
    mh.save(data, sys.argv[1])
"""


@pytest.mark.parametrize("place", ["d4rl", "npz"], indirect=True)
def test_a_killed_writer_leaves_a_whole_file_or_none(place, tmp_path):
    for wait in (0.05, 0.3, 1.5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, place], stdout=subprocess.PIPE, cwd=tmp_path
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"go\n"
        time.sleep(wait)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        where = tmp_path / place.partition(":")[2]
        if where.exists():
            assert load(where).transitions == 400_000
