"""Hyper-parameters of fitting, their defaults and the paper's."""

from dataclasses import dataclass, field, fields, make_dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from manyhands.errors import UserError


def _option(default: Any, help: str) -> Any:
    """A hyper-parameter is declared once: its default and its help."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Options:
    """What can be chosen, with what it means. The defaults recover sources."""

    steps: int = _option(12_000, "Updates in all.")
    init: Literal["cluster", "random"] = _option(
        "cluster",
        "Where codes start: embed trajectories first and cluster them, or as printed.",
    )
    values: bool = _option(
        False,
        "Learn every behavior's Q-functions too, as the paper does.",
    )
    merge: bool = _option(
        True, "Merge codes that are one behavior; k is then the most there may be."
    )
    batch_size: int = _option(256, "Transitions per update.")
    policy_rate: float = _option(3e-4, "Learning rate of the policy network.")
    embedding_factor: float = _option(
        10.0, "Learning rate of the embeddings W and E, in units of the policy's."
    )
    critic_rate: float = _option(1e-4, "Learning rate of the Q-functions.")
    weight_decay: float = _option(
        20_000.0,
        "Weight decay of the policy's kernels, in units of the learning rate and "
        "divided by the number of transitions: the more data, the weaker.",
    )
    rate_decay: bool = _option(
        True, "Let the learning rates fall to zero over the second half of a stage."
    )
    commitment: float = _option(0.1, "Weight alpha of the commitment loss.")
    target_rate: float = _option(0.001, "How fast target Q-functions follow.")
    discount: float = _option(0.99, "Discount factor of the Q-functions.")
    standardise: bool = _option(
        True, "Scale every observation to mean 0 and deviation 1 first."
    )
    policy_width: int = _option(200, "Hidden units of the policy network.")
    critic_width: int = _option(300, "Hidden units of the Q-functions.")
    holdout: float = _option(
        0.1, "Share of each trajectory's steps kept out, to judge codes and fits by."
    )
    embed_share: float = _option(
        0.4, "Share of the updates that embed trajectories, before there are codes."
    )


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
PRESETS = {"default": Options(), "paper": PAPER}


def _overrides() -> type:
    """Every option as "not given" (None), for the command line."""
    return make_dataclass(
        "Overrides",
        [
            (
                option.name,
                Annotated[
                    option.type | None,  # pyright: ignore
                    tyro.conf.arg(
                        help=f"{option.metadata['help']} "
                        f"({option.default}; paper: {getattr(PAPER, option.name)})"
                    ),
                ],
                None,
            )
            for option in fields(Options)
        ],
        frozen=True,
    )


if TYPE_CHECKING:
    Overrides = Any
else:
    Overrides = _overrides()


def resolve(preset: str, changes: dict[str, Any]) -> Options:
    if preset not in PRESETS:
        raise UserError(f"preset: expected one of {', '.join(PRESETS)}, got {preset}")
    known = [field.name for field in fields(Options)]
    for name in changes:
        if name not in known:
            raise UserError(f"{name}: expected one of the options {', '.join(known)}")
    options = replace(PRESETS[preset], **changes)
    for name, least in (("steps", 1), ("batch_size", 1), ("policy_width", 1)):
        if getattr(options, name) < least:
            raise UserError(
                f"{name}: expected at least {least}, got {getattr(options, name)}"
            )
    for name in ("holdout", "embed_share"):
        if not 0 < getattr(options, name) < 1:
            raise UserError(
                f"{name}: expected between 0 and 1, got {getattr(options, name)}"
            )
    return options
