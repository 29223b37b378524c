"""Hyper-parameters of the agents that make data: rlkit's."""

from manyhands.options import COUNT, POSITIVE, SHARE, option, options, traced


@options
class Options:
    """rlkit's settings."""

    steps: int = option(1_000_000, "Updates of every agent.", COUNT)
    epoch: int = option(
        1000, "Updates, and steps in the environment, at a time.", COUNT
    )
    first: int = option(1000, "Steps by the untrained policy to begin with.", COUNT)
    keep_every: int = option(5000, "Keep the policies as they are so often.", COUNT)
    batch_size: int = option(256, "Transitions per update.", COUNT)
    width: int = option(256, "Hidden units of the networks.", COUNT)
    rate: float = traced(3e-4, "Learning rate.", POSITIVE)
    discount: float = traced(0.99, "Discount factor.", SHARE)
    target_rate: float = traced(5e-3, "How fast target critics follow.", SHARE)


PRESETS = {"default": Options()}
