"""Words of messages."""


def counted(number: int, thing: str) -> str:
    """1 trajectory, 2,000 trajectories."""
    if number == 1:
        return f"1 {thing}"
    several = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}s"
    return f"{number:,} {several}"
