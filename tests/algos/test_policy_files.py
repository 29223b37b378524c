"""Files of policies: what cannot be read is refused in one line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from manyhands import Behavior, Policy, UserError, fit, load_policy, make, train
from manyhands.cli import main


@pytest.fixture(scope="module")
def data():
    return make("fork-2", 500)


@pytest.fixture(scope="module")
def behavior(data) -> Behavior:
    return fit(data, k=3, steps=20, policy_width=8, merge=False)


@pytest.fixture(scope="module")
def policy(data, behavior) -> Policy:
    """With arrays that acting needs, and some that it does not."""
    return train(data, "clone", behavior=behavior, episodes=0)


@pytest.fixture
def saved(policy, tmp_path) -> Path:
    policy.save(tmp_path / "policy")
    return tmp_path / "policy"


def change(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def refusal(read, folder: Path) -> str:
    with pytest.raises(UserError) as error:
        read(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", "expected an object with algo, got an empty one"),
        ("[]", "expected an object with algo, got list"),
        ('{"algo": "bc"}', "expected an object with options, got ['algo']"),
    ],
)
def test_a_description_without_what_it_needs(saved, content, words):
    (saved / "policy.json").write_text(content)
    assert refusal(load_policy, saved) == f"{saved / 'policy.json'}: {words}"


def test_the_command_line_says_so_in_one_line(saved, capsys):
    (saved / "policy.json").write_text("{}")
    assert main.run(["evaluate", str(saved)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: {saved / 'policy.json'}: expected an object")
    assert said.count("\n") == 1


def test_what_another_version_may_have_written(saved, policy):
    about = json.loads((saved / "policy.json").read_text())
    change(saved / "policy.json", options=about["options"] | {"newer": 1})
    said = refusal(load_policy, saved)
    assert said.startswith(f"{saved / 'policy.json'}: options: expected some of steps")
    assert said.endswith("got newer; was it written by another version?")
    change(saved / "policy.json", algo="newer")
    assert "policy.json: algo: expected one of bc" in refusal(load_policy, saved)
    # An option that came later has its default.
    fewer = {k: v for k, v in about["options"].items() if k != "behavior_steps"}
    change(saved / "policy.json", algo="clone", options=fewer)
    assert load_policy(saved).options == policy.options


def test_the_same_of_behaviors(behavior, tmp_path):
    behavior.save(tmp_path)
    change(tmp_path / "behavior.json", options={"newer": 1})
    said = refusal(Behavior.load, tmp_path)
    assert said.startswith(f"{tmp_path / 'behavior.json'}: options: expected some of")
    change(tmp_path / "behavior.json", options={}, method="newer")
    assert "method: expected one of vq" in refusal(Behavior.load, tmp_path)
    (tmp_path / "behavior.json").write_text("{}")
    assert "expected an object with method" in refusal(Behavior.load, tmp_path)


# Where they are saved


def test_a_policy_replaces_another_one(saved, policy):
    policy.save(saved)
    assert load_policy(saved).algo == "clone"


@pytest.mark.parametrize("name", ["config.json", "behavior.json"])
def test_a_run_is_left_alone(policy, tmp_path, name):
    (tmp_path / name).write_text("{}")
    with pytest.raises(UserError) as error:
        policy.save(tmp_path)
    assert str(error.value) == (
        f"{tmp_path}: expected a directory for a policy alone, got one with a run in "
        f"it ({name}); choose another directory"
    )
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_is_no_directory_to_save_to(policy, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="expected a directory to write to, got a file"):
        policy.save(tmp_path / "file")


# Arrays


def cut(folder: Path, name: str, columns: int) -> None:
    arrays = load_file(folder / "policy.safetensors")
    arrays[name] = np.ascontiguousarray(arrays[name][..., :columns])
    save_file(arrays, folder / "policy.safetensors")


@pytest.mark.parametrize("name", ["model.E", "model.head.embed"])
def test_arrays_that_are_not_those_that_were_saved(saved, name):
    was = load_file(saved / "policy.safetensors")[name].shape
    cut(saved, name, 3)
    assert refusal(load_policy, saved) == (
        f"{saved / 'policy.safetensors'}: {name}: expected float32{was}, got "
        f"float32{(was[0], 3)}"
    )


def describe_anew(folder: Path) -> None:
    """Make policy.json agree with the arrays that are there."""
    arrays = load_file(folder / "policy.safetensors")
    kinds = {name: f"{array.dtype}{array.shape}" for name, array in arrays.items()}
    change(folder / "policy.json", arrays=kinds)


def test_arrays_must_fit_each_other(saved, policy, data):
    describe_anew(saved)
    rows = data.observations[:5]
    assert np.array_equal(load_policy(saved).act(rows), policy.act(rows))
    cut(saved, "model.head.embed", 3)
    describe_anew(saved)
    said = refusal(load_policy, saved)
    assert said.startswith(
        f"{saved / 'policy.safetensors'}: expected arrays that fit each other, as clone"
    )


@pytest.mark.parametrize("name", ["box.low", "scaling.center"])
def test_sizes_of_the_outer_arrays_must_agree(saved, name):
    cut(saved, name, 1)
    describe_anew(saved)
    assert "policy.safetensors: expected arrays that " in refusal(load_policy, saved)


def test_an_array_that_is_missing(saved):
    arrays = load_file(saved / "policy.safetensors")
    del arrays["box.low"]
    save_file(arrays, saved / "policy.safetensors")
    said = refusal(load_policy, saved)
    assert said.endswith(": box.low: expected float32(2,), got nothing")
    describe_anew(saved)
    said = refusal(load_policy, saved)
    assert said.startswith(f"{saved / 'policy.json'}: arrays: expected an object with")
