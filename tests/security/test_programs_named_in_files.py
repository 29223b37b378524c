"""No file makes a program run: neither an environment's specification nor a module."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from manyhands import UserError, fit, save, train
from manyhands.data import formats
from manyhands.report.saved_run import open_run

STORAGES = ("hdf5", "arrow", "parquet")
TINY = "--algo bc --steps 4 --width 8 --batch-size 8 --episodes 1".split()


def minari_folder(place: Path, storage: str) -> Path:
    """As Minari writes it, in one of its storages."""
    minari = pytest.importorskip("minari")
    del minari
    from gymnasium import spaces
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    box = spaces.Box(-1, 1, (2,), np.float32)
    (place / "data").mkdir(parents=True)
    stored = MinariStorage.new(
        place / "data", observation_space=box, action_space=box, data_format=storage
    )
    rows = np.zeros((4, 2), np.float32)
    stored.update_episodes(
        [
            EpisodeBuffer(
                observations=rows,
                actions=rows[1:],
                rewards=np.zeros(3),
                terminations=np.array([False, False, True]),
                truncations=np.zeros(3, bool),
            )
        ]
    )
    stored.update_metadata({"dataset_id": "me-v0", "minari_version": "0.5.0"})
    return place


def set_metadata(place: Path, **changes: object) -> None:
    path = place / "data" / "metadata.json"
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def specifications(canary: Path) -> dict[str, dict]:
    """Environments that run a command when they are made."""
    call = {"entry_point": "os:system", "kwargs": {"command": f"touch {canary}"}}
    plain = {"id": "X-v0", "entry_point": "gymnasium.envs:Env", "kwargs": {}}
    wrapper = {"name": "system", **call}
    return {
        "entry point": {"id": "X-v0", **call},
        "vector entry point": {**plain, "vector_entry_point": "os:system"},
        "wrapper": {**plain, "additional_wrappers": [wrapper]},
        "id with a module": {**plain, "id": "evilmod:X-v0"},
        "call as id": {"id": call},
    }


@pytest.mark.parametrize("missing", ["observation_space", "action_space", "both"])
@pytest.mark.parametrize("storage", STORAGES)
def test_environments_of_minari_are_never_made(
    refused, tmp_path, canary, evil_module, storage, missing
):
    place = minari_folder(tmp_path / "me-v0", storage)
    fields = ("observation_space", "action_space") if missing == "both" else (missing,)
    for name, spec in specifications(canary).items():
        set_metadata(place, **dict.fromkeys(fields), env_spec=json.dumps(spec))
        for words in (
            ("data", "info", "./me-v0"),
            ("data", "info", "minari:./me-v0"),
            ("data", "convert", "./me-v0", "out.npz"),
            ("fit", "./me-v0", "--out", "run", "--k", "2", "--steps", "10"),
        ):
            line = refused(*words)
            assert "expected " + fields[-1] in line or "expected " + fields[0] in line
            assert not canary.exists(), (name, words)


@pytest.mark.parametrize("storage", STORAGES)
def test_specifications_beside_stated_spaces_are_only_names(
    tmp_path, canary, evil_module, storage, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    place = minari_folder(tmp_path / "me-v0", storage)
    for name, spec in specifications(canary).items():
        set_metadata(place, env_spec=json.dumps(spec))
        if isinstance(spec["id"], str):
            assert formats.read(place).env_id == spec["id"]
        else:
            with pytest.raises(UserError, match="env_id: expected text"):
                formats.read(place)
        assert not canary.exists(), name


@pytest.mark.parametrize(
    "space",
    [
        "{}",
        "[]",
        "null",
        '"Box"',
        "{broken",
        '{"type": "os:system"}',
        '{"type": "Box"}',
        '{"type": "Box", "shape": [2], "dtype": "float32", "low": [0], "high": [1]}',
        '{"type": "Box", "shape": [-2], "dtype": "float32", "low": [], "high": []}',
        '{"type": "Box", "shape": [1e9], "dtype": "float32", "low": [], "high": []}',
        '{"type": "Discrete", "n": 1e99, "start": 0}',
        '{"type": "Dict", "subspaces": [1]}',
        '{"type": "Tuple", "subspaces": {"a": 1}}',
        '{"type": "Tuple", "subspaces": ' * 5000 + "1" + "}" * 5000,
        '{"type": "Tuple", "subspaces": [' * 200 + '{"type": "Box"}' + "]}" * 200,
    ],
)
def test_spaces_are_read_from_json_alone(refused, tmp_path, space):
    place = minari_folder(tmp_path / "me-v0", "hdf5")
    for field in ("observation_space", "action_space"):
        before = (place / "data" / "metadata.json").read_text()
        set_metadata(place, **{field: space})
        line = refused("data", "info", "./me-v0")
        assert "observations" in line or "actions" in line or field in line
        (place / "data" / "metadata.json").write_text(before)


def test_a_report_opens_nothing_that_its_run_does_not_vouch_for(
    tmp_path, data, canary, monkeypatch
):
    """A run from others, which names a hostile folder as what it was made from."""
    monkeypatch.chdir(tmp_path)
    fit(data, "gaussian", steps=4, policy_width=8, batch_size=8, out="run")
    place = minari_folder(tmp_path / "me-v0", "hdf5")
    spec = specifications(canary)["entry point"]
    set_metadata(place, observation_space=None, env_spec=json.dumps(spec))
    path = Path("run/config.json")
    config = json.loads(path.read_text())
    other = replace(data, rewards=data.rewards + 1)  # of another fingerprint
    save(other, tmp_path / "other.npz")
    for where in (
        str(place),
        f"minari:{place}",
        "minari:me-v0",
        "./me-v0",
        "other.npz",
        str(tmp_path / "other.npz"),
        "/dev/zero",
        "npz:/dev/zero",
        ["data.npz"],
        None,
    ):
        origin = {"data": where, "options": {"clip": True}}
        path.write_text(json.dumps(config | {"loaded_from": origin}))
        saved = open_run("run")
        assert saved.data is None, where
        assert saved.no_data.startswith("The data set "), where
        assert not canary.exists(), where
    save(data, "data.npz")  # the control
    origin = {"data": str(tmp_path / "data.npz"), "options": {}}
    path.write_text(json.dumps(config | {"loaded_from": origin}))
    assert open_run("run").data is not None


def named_by_file(data, where: str, env_id: str) -> str:
    """Data whose file names this environment, in one of the places for it."""
    save(replace(data, env_id=env_id), where)
    return where


def preset(data: str, env: str = "") -> str:
    algo = '[[algo]]\nname = "bc"\nsteps = 4\nwidth = 8\n'
    return f'data = ["{data}"]\nseeds = [0]\n{env}\n{algo}'


PLACES = ["d.npz", "d.hdf5", "robomimic:r.hdf5", "lerobot:robot", "minari:./me-v0"]


@pytest.mark.parametrize("where", [*PLACES, "d4rl's own attribute"])
def test_files_name_no_modules(
    refused, tmp_path, data, canary, evil_module, where, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    if where == "d4rl's own attribute":
        where = named_by_file(data, "d.hdf5", "Pendulum-v1")
        with h5py.File("d.hdf5", "a") as file:
            del file.attrs["env_id"]
            file.attrs["env"] = evil_module
    else:
        if where.startswith("minari"):
            pytest.importorskip("minari")
        where = named_by_file(data, where, evil_module)
    place = where.partition(":")[2] if where.startswith("minari") else where
    line = refused("train", place, "--out", "run", *TINY)
    assert evil_module in line
    assert f"--env {evil_module}" in line
    assert not Path("run").exists()
    Path("preset.toml").write_text(preset(place))
    assert evil_module in refused("benchmark", "preset.toml", "--out", "table")
    assert not canary.exists()


def test_presets_name_no_modules(refused, tmp_path, data, canary, evil_module):
    save(data, tmp_path / "d.npz")
    for env in (f'env = "{evil_module}"', f'env = {{"d.npz" = "{evil_module}"}}'):
        (tmp_path / "preset.toml").write_text(preset("d.npz", env))
        line = refused("benchmark", "preset.toml", "--out", "table")
        assert "may not name a module" in line
        assert not canary.exists()


def test_policies_name_no_modules(refused, tmp_path, data, canary, evil_module):
    train(data, "bc", steps=4, width=8, batch_size=8, episodes=0, out=tmp_path / "run")
    path = tmp_path / "run" / "policy.json"
    content = json.loads(path.read_text())
    for env_id, words in (
        (evil_module, "may not make us import a module"),
        (["evilmod:X-v0"], "env_id: expected text"),
        (7, "env_id: expected text"),
    ):
        path.write_text(json.dumps(content | {"env_id": env_id}))
        assert words in refused("evaluate", "run", "--episodes", "1")
        assert not canary.exists()


def test_a_person_may_name_a_module(tmp_path, data, canary, evil_module, process):
    """And the canary would have noticed, had a file been able to."""
    save(data, tmp_path / "d.npz")
    words = "train", "d.npz", "--out", "run", *TINY, "--evaluations", 0
    done = process(*words, "--env", evil_module)
    assert done.returncode == 1  # the working directory is on nobody's path
    assert "evilmod" in done.stderr
    assert not canary.exists()
    done = process(*words, "--env", evil_module, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert canary.exists()


def test_no_library_is_imported_from_the_working_directory(tmp_path, data, canary):
    save(data, tmp_path / "d.npz")
    for name in ("gymnasium", "h5py", "numpy", "jax", "minari", "json", "rich"):
        text = f"open({str(canary)!r}, 'w')\nraise SystemExit('imported')\n"
        (tmp_path / f"{name}.py").write_text(text)
    program = Path(sys.executable).with_name("manyhands")
    words = "train", "d.npz", "--out", "run", *TINY, "--evaluations", "0"
    done = subprocess.run(
        [program, *words], capture_output=True, text=True, cwd=tmp_path
    )  # and its children: Pendulum is played in one
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["policy"][
        "return_mean"
    ]
    assert not canary.exists()
