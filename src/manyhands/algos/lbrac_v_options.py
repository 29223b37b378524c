"""LBRAC-v's hyper-parameters, and those that the paper prints."""

from typing import Literal

from manyhands.algos.algorithm import Common
from manyhands.options import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    option,
    options,
    traced,
)


@options
class Options(Common):
    behavior_steps: int = option(
        0,
        "Updates of the behavior set; 0: as many as `fit` takes by default.",
        NOT_NEGATIVE,
    )
    joint: bool = option(
        False,
        "Train pi and all behaviors together in shared networks, as printed; else the "
        "behaviors stay and pi has networks of its own.",
    )
    pull: bool = option(
        False,
        "Let the divergence move the behaviors too, as printed (joint only).",
    )
    divergence: Literal["exact", "sampled"] = option(
        "exact", "KL of the Gaussians before the tanh, or by samples as printed."
    )
    samples: int = option(10, "Samples for the divergence.", COUNT)
    value_scale: Literal["mean", "none"] = option(
        "mean", "What Q is divided by in the policy's loss: its mean size, or 1."
    )
    held_to: Literal["best", "own"] = option(
        "best",
        "Which behavior pi is held to: the best (not joint), or the one that made the "
        "trajectory, as printed.",
    )
    critic_width: int = option(300, "Hidden units of the Q-functions.", COUNT)
    warm_up: int = option(
        10_000,
        "Updates of the Q-functions alone, while pi is still the best behavior; by "
        "default at most a fifth of the steps given.",
        NOT_NEGATIVE,
    )
    beta: float = traced(1.0, "Weight of the divergence.", NOT_NEGATIVE)
    value_penalty: float = traced(
        1.0, "Weight of beta D in the Q-functions' target.", NOT_NEGATIVE
    )
    value_weight: float = traced(
        400.0, "Weight of Q in the policy's loss, where it is divided.", NOT_NEGATIVE
    )
    value_share: bool = option(
        True,
        "Take that weight times the share of the data that the behavior made to which "
        "pi is held (the best): elsewhere Q knows less of what pi does.",
    )
    reach: float = traced(
        0.5,
        "How far Q may move pi, in deviations of the behavior, where it is divided; "
        "for a divergence of reach^2 / 2 nats.",
        POSITIVE,
    )
    policy_rate: float = traced(5e-5, "Learning rate of the policy.", POSITIVE)
    critic_rate: float = traced(3e-4, "Learning rate of the Q-functions.", POSITIVE)
    target_rate: float = traced(0.005, "How fast target Q-functions follow.", SHARE)
    discount: float = traced(0.99, "Discount factor.", SHARE)
    commitment: float = traced(
        0.1, "Weight alpha of the commitment loss (joint only).", NOT_NEGATIVE
    )


PAPER = Options(
    steps=500_000,
    standardise=False,
    behavior_steps=500_000,
    joint=True,
    pull=True,
    divergence="sampled",
    value_scale="none",
    held_to="own",
    warm_up=0,
    critic_rate=1e-4,
    target_rate=0.001,
)
PRESETS = {"default": Options(), "paper": PAPER}
