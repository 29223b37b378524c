"""Environments: the built-in fork problem, reference scores, evaluation."""


def register() -> None:
    """Make `gymnasium.make("manyhands/Fork-v0")` work, where gymnasium is installed."""
    try:
        import gymnasium
    except ImportError:
        return
    for course in ("fork", "leap"):
        env_id = f"manyhands/{course.capitalize()}-v0"
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id,
                entry_point="manyhands.envs.fork_gym:ForkEnv",
                kwargs={"course": course},
            )
