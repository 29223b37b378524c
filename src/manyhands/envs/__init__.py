"""Environments: the built-in fork problem, reference scores, evaluation."""


def register() -> None:
    """Make `gymnasium.make("manyhands/Fork-v0")` work, where gymnasium is installed."""
    try:
        import gymnasium
    except ImportError:
        return
    if "manyhands/Fork-v0" not in gymnasium.registry:
        gymnasium.register(
            "manyhands/Fork-v0", entry_point="manyhands.envs.fork_gym:ForkEnv"
        )
