"""What presets may hold, and the fleets that they become: no training."""

from dataclasses import asdict

import pytest

from manyhands import UserError
from manyhands.algos.registry import algorithm
from manyhands.sweep import preset as presets
from manyhands.sweep.plan import Fleet, fleets, joined


@pytest.mark.parametrize(
    ("name", "sets", "runs"),
    [
        ("smoke", 1, 8),
        ("baselines", 8, 8 * 10 * 3),
        ("model-based", 9, 9 * 2 * 3),
        ("heterogeneous", 15, 15 * 2 * 3),
        ("varying-k", 15, 15 * 5 * 3),
        # LBRAC-v for five K, and eight others, with five seeds
        ("paper-heterogeneous", 15, 15 * 13 * 5),
        ("paper-d4rl-style", 12, 12 * 13 * 5),
    ],
)
def test_built_in_presets(name, sets, runs):
    preset = presets.load(name)
    assert len(preset.data) == sets
    assert sum(len(fleet.keys) for fleet in fleets(preset)) == runs


def test_a_fleet_survives_json():
    (fleet, *_) = fleets(presets.load("smoke"), only=("lbrac_v",))
    assert Fleet.from_json(fleet.to_json()) == fleet
    assert [key.k for key in fleet.keys] == ["2", "2", "5", "5"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data = ['a']\nseeds = [0]", "at least one"),
        ("seeds = [0]\n[[algo]]\nname = 'bc'", "data: expected at least one"),
        ("data = ['a']\nseeds = [0]\n[[algo]]\nname = 'magic'", "magic"),
        (
            "data = ['a']\nseeds = [0]\n[[algo]]\nname = 'bc'\nk = 3",
            "bc: expected no k",
        ),
        ("data = ['a']\nseeds = [0]\n[[algo]]\nname = 'bc'\nstpes = 3", "stpes"),
        ("data = ['a']\nseed = [0]\n[[algo]]\nname = 'bc'", "seed: expected one of"),
        ("data = ['a', 'a']\nseeds = [0]\n[[algo]]\nname = 'bc'", "no two alike"),
        ("data = ['a']\nseeds = [-1]\n[[algo]]\nname = 'bc'", "2.31 - 1, got -1"),
        ("data = [", "expected TOML"),
        (
            "data = ['a']\nseeds = [0]\n[[algo]]\nname = 'bc'\nfor.b = {steps = 3}",
            "for: expected one of a; got b",
        ),
        (
            "data = ['a']\nseeds = [0]\n[[algo]]\nname = 'bc'\nfor.a = {stpes = 3}",
            "stpes",
        ),
    ],
)
def test_what_is_wrong_in_a_preset_is_said(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        presets.load(str(path))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"episodes": "x"}, "episodes: expected a whole number, at least 0, got 'x'"),
        ({"episodes": -1}, "episodes: expected a whole number, at least 0, got -1"),
        ({"evaluations": 1.5}, "evaluations: expected a whole number, .* got 1.5"),
        ({"evaluations": True}, "evaluations: expected a whole number, .* got True"),
        ({"transitions": -5}, "transitions: expected .*, at least 1, got -5"),
        ({"data": "a.npz"}, "data: expected a list of names, got 'a.npz'"),
        ({"data": ["a.npz", 3]}, "data: expected a list of names, got 3 in it"),
        ({"seeds": 3}, "seeds: expected a list of whole numbers, got 3"),
        ({"seeds": [True]}, "seeds: expected a list of whole numbers, got True in it"),
        ({"about": 3}, "about: expected text, got 3"),
        ({"algo": {"name": "bc"}}, "algo.*: expected a list of tables, got {'name'"),
    ],
)
def test_what_a_preset_may_hold(wrong, message):
    content = {"data": ["a"], "seeds": [0], "algo": [{"name": "bc"}]}
    with pytest.raises(UserError, match=message):
        presets.parse("mine", content | wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        *(
            ({"k": k}, f'k: expected whole numbers, at least 1, or "auto"; got {shown}')
            for k, shown in ((-3, "-3"), (0, "0"), (1.5, "1.5"), ([2, "x"], "'x'"))
        ),
        ({"k": []}, "k: expected at least one, got none"),
        ({"k": [2, 2]}, "k: expected no two alike, got 2, 2"),
        ({"label": 3}, "label: expected text, got 3"),
        ({"for": {"a": 3}}, "for: expected options for each of some data sets, got {"),
    ],
)
def test_what_an_entry_may_hold(wrong, message):
    content = {"data": ["a"], "seeds": [0]}
    with pytest.raises(UserError, match=message):
        presets.parse("mine", content | {"algo": [{"name": "lbrac_v"} | wrong]})
    right = {"name": "lbrac_v", "k": [1, "auto"]}
    assert presets.parse("mine", content | {"algo": [right]}).entries[0].k == (
        1,
        "auto",
    )


def test_an_unknown_preset_or_part_is_refused():
    with pytest.raises(UserError, match="smoky: expected one of baselines, hetero"):
        presets.load("smoky")
    with pytest.raises(UserError, match="only: expected part of a name"):
        fleets(presets.load("smoke"), only=("nothing",))


def test_options_may_differ_between_data_sets():
    entry = {"name": "rebrac", "for": {"b": {"value_penalty": 0.5}}, "steps": 9}
    content = {"data": ["a", "b", "c"], "seeds": [0], "algo": [entry]}
    apart = fleets(presets.parse("mine", content))
    others = {"steps": 9}
    assert [f.options for f in apart] == [
        others,
        others | {"value_penalty": 0.5},
        others,
    ]
    # Those alike train together.
    together = joined(apart, kind=lambda fleet: "all", most=lambda fleet: 9)
    assert [fleet.data for fleet in together] == [("a", "c"), ("b",)]


@pytest.mark.parametrize(
    ("preset", "learner", "version", "names"),
    [
        ("baselines", "rebrac", "", ("policy_penalty", "value_penalty")),
        ("model-based", "mopo", "-v2", ("horizon", "penalty")),
    ],
)
def test_what_was_published_for_a_data_set_is_used(preset, learner, version, names):
    loaded = presets.load(preset)
    found = fleets(loaded, only=(f"*/{learner}",))
    assert len(found) == len(loaded.data)
    for fleet in found:
        name = fleet.data[0].removeprefix("zoo:") + version
        name = name.replace("heterogeneous-5", "medium-expert")
        published = asdict(algorithm(learner).presets[name])
        assert {n: fleet.options[n] for n in names} == {n: published[n] for n in names}


@pytest.mark.parametrize("preset", ["baselines", "paper-d4rl-style"])
def test_the_vae_of_plas_is_narrow_on_medium_replay(preset):
    # As published. With 750 units Q grew without end on both sets of `baselines`.
    for fleet in fleets(presets.load(preset), only=("*/plas",)):
        narrow = fleet.data[0].endswith("medium-replay")
        assert fleet.options.get("behavior_width", 750) == (128 if narrow else 750)


@pytest.mark.parametrize(
    ("only", "labels"),
    [
        (("brac_v",), {"brac_v", "lbrac_v"}),
        (("*/brac_v",), {"brac_v"}),
        (("*/bc", "/lbrac_v"), {"bc", "lbrac_v"}),
    ],
)
def test_parts_are_named_by_words_or_patterns(only, labels):
    assert {fleet.label for fleet in fleets(presets.load("smoke"), only)} == labels
