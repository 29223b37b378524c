"""Hyper-parameters of fitting, their defaults and the paper's."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from manyhands.options import (
    COUNT,
    NOT_NEGATIVE,
    PART,
    POSITIVE,
    SHARE,
    choose,
    option,
    options,
    overrides,
    traced,
)

# More of it leaves networks too weak to tell behaviors apart, where there is little
# data (docs/behavior.md).
MOST_DECAY = 4.0


@options
class Options:
    """What can be chosen, with what it means. The defaults recover sources."""

    steps: int = option(
        12_000,
        "Updates in all; by default three for ten transitions if that is more, at most "
        "60,000.",
        COUNT,
    )
    init: Literal["cluster", "random"] = option(
        "cluster",
        "Where codes start: embed trajectories first and cluster them, or as printed.",
    )
    values: bool = option(
        False,
        "Learn every behavior's Q-functions too, as the paper does.",
    )
    merge: bool = option(
        True, "Merge codes that are one behavior; k is then the most there may be."
    )
    batch_size: int = option(256, "Transitions per update.", COUNT)
    policy_rate: float = traced(3e-4, "Learning rate of the policy network.", POSITIVE)
    embedding_factor: float = traced(
        10.0,
        "Learning rate of the embeddings W and E, in units of the policy's.",
        NOT_NEGATIVE,
    )
    critic_rate: float = traced(1e-4, "Learning rate of the Q-functions.", POSITIVE)
    weight_decay: float = traced(
        20_000.0,
        "Weight decay of the policy's kernels, in units of the learning rate and "
        "divided by the number of transitions: the more data, the weaker; at most 4 "
        "learning rates.",
        NOT_NEGATIVE,
    )
    rate_decay: bool = option(
        True, "Let the learning rates fall to zero over the second half of a stage."
    )
    commitment: float = traced(
        0.1, "Weight alpha of the commitment loss.", NOT_NEGATIVE
    )
    target_rate: float = traced(0.001, "How fast target Q-functions follow.", SHARE)
    discount: float = traced(0.99, "Discount factor of the Q-functions.", SHARE)
    standardise: bool = option(
        True, "Scale every observation to mean 0 and deviation 1 first."
    )
    policy_width: int = option(200, "Hidden units of the policy network.", COUNT)
    critic_width: int = option(300, "Hidden units of the Q-functions.", COUNT)
    holdout: float = option(
        0.1,
        "Share of each trajectory's steps kept out, to judge codes and fits by.",
        PART,
    )
    embed_share: float = option(
        0.4,
        "Share of the updates that embed trajectories, before there are codes.",
        PART,
    )

    def decay(self, transitions: int) -> float:
        """Of the kernels, in learning rates."""
        return min(self.weight_decay / transitions, MOST_DECAY)


# Every number as printed: 500k updates from a random start, one learning rate, Q too.
PAPER = Options(
    steps=500_000,
    init="random",
    values=True,
    merge=False,
    policy_rate=5e-5,
    embedding_factor=1.0,
    weight_decay=0.0,
    rate_decay=False,
    standardise=False,
)
# For some hundred thousand transitions or more, and a GPU: probabilities come closer to
# the true ones (docs/behavior.md), at some ten times the arithmetic.
LARGE = Options(
    steps=60_000,
    batch_size=2048,
    policy_width=400,
    policy_rate=1e-3,
    weight_decay=200_000.0,
)
PRESETS = {"default": Options(), "paper": PAPER, "large": LARGE}

if TYPE_CHECKING:
    Overrides = Any
else:
    Overrides = overrides(PRESETS)


def resolve(preset: str, changes: dict[str, Any], transitions: int) -> Options:
    """A preset with changes, for a data set of this size."""
    options = choose(PRESETS, preset, changes)
    if preset != "default" or "steps" in changes:
        return options
    # Sources that are alike come apart in the embedding late; little data is learnt
    # by heart before.
    steps = min(3 * transitions // 10_000 * 1000, 60_000)
    return replace(options, steps=max(options.steps, steps))
