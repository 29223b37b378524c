"""`Trajectories`: the one container for logged data, immutable and checked.

Flat arrays over all transitions plus trajectory offsets, so that a batch is one gather
and a contiguous range of trajectories is a view.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from manyhands.data import arrays, checks
from manyhands.errors import UserError

PER_TRANSITION = (
    "observations",
    "actions",
    "rewards",
    "next_observations",
    "terminals",
    "timeouts",
    "log_probs",
)
PER_TRAJECTORY = ("sources", "final_known", "ids")
NOT_CONTENT = ("ids", "name", "clipped", "timeouts_marked")
Index = int | slice | Sequence[int] | np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Trajectories:
    """M trajectories with N transitions in all. Arrays are read-only.

    A trajectory ends in a terminal (the world ended: its value is 0), in a time-out
    (the world went on: bootstrap from `next_observations`), or in neither (cut off;
    for learning the same as a time-out).
    """

    observations: np.ndarray  # [N, S] float32
    actions: np.ndarray  # [N, A] float32
    rewards: np.ndarray  # [N] float32
    next_observations: np.ndarray  # [N, S] float32
    terminals: np.ndarray  # [N] bool, true only at the end of a trajectory
    timeouts: np.ndarray  # [N] bool, likewise, never together with terminals
    offsets: np.ndarray  # [M + 1] int64: trajectory m is rows offsets[m]:offsets[m+1]
    action_low: np.ndarray  # [A] float32
    action_high: np.ndarray  # [A] float32
    # [M] bool: is the last step's next observation real? Where the format does not
    # keep it, its place is filled with the observation itself (see `bootstrappable`).
    final_known: np.ndarray
    ids: np.ndarray  # [M] int64: position in the data set as loaded; kept by views
    sources: np.ndarray | None = None  # [M] int32 into source_names
    source_names: tuple[str, ...] = ()
    log_probs: np.ndarray | None = None  # [N] float32: log b(a|s) as logged
    env_id: str | None = None
    # How it was read, not what it says: these are no part of the fingerprint.
    name: str = "data"
    clipped: int = 0  # action values moved to the bounds on request
    timeouts_marked: bool = True  # false: divided at terminals and after max_steps

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                object.__setattr__(self, field.name, _read_only(value))
        checks.check(self)

    @classmethod
    def from_arrays(
        cls,
        observations: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        terminals: ArrayLike,
        *,
        timeouts: ArrayLike | None = None,
        trajectory: ArrayLike | None = None,
        next_observations: ArrayLike | None = None,
        final_observations: ArrayLike | None = None,
        final_known: ArrayLike | None = None,
        source: ArrayLike | None = None,
        source_names: Sequence[str] | None = None,
        log_probs: ArrayLike | None = None,
        action_bounds: tuple[ArrayLike, ArrayLike] = (-1.0, 1.0),
        clip: bool = False,
        max_steps: int | None = None,
        env_id: str | None = None,
        name: str = "arrays",
        copy: bool = True,
    ) -> "Trajectories":
        """Build from flat arrays over all transitions, trajectories one after another.

        Args:
            observations: (N, S).
            actions: (N, A).
            rewards: (N,) or (N, 1).
            terminals: (N,) or (N, 1), true where the world ended.
            timeouts: (N,), true where a trajectory was ended by a time limit.
            trajectory: (N,), one id per trajectory; alternative to `timeouts`.
                A trajectory that does not end in a terminal ends in a time-out then.
            next_observations: (N, S). Where absent they are the next rows, and
                the last of each trajectory is `final_observations` or unknown.
            final_observations: (M, S), the observation after each trajectory's end.
            final_known: (M,), false where the given final observation is made up.
            source: who made it, (N,) or (M,), numbers or strings.
            source_names: names for sources that are numbers 0, 1, ...
            log_probs: (N,), log-probability of each action under its source.
            action_bounds: lowest and highest action, numbers or (A,) arrays.
            clip: move actions outside the bounds onto them instead of refusing.
            max_steps: a time limit, for data without time-outs: a trajectory of this
                many steps ends there.
            env_id: the Gymnasium environment to evaluate in, when known.
            name: what to call the data set in tables.
            copy: False if nobody else will write to these arrays.
        """
        observations = arrays.matrix("observations", observations, copy)
        actions = arrays.matrix("actions", actions, copy)
        terminals = arrays.marks("terminals", terminals)
        rows = len(observations)
        if timeouts is not None:
            timeouts = arrays.marks("timeouts", timeouts)
        rewards = arrays.column("rewards", rewards, np.float32, copy)
        if log_probs is not None:
            log_probs = arrays.column("log_probs", log_probs, np.float32, copy)
        checks.same_length(
            rows,
            actions=actions,
            rewards=rewards,
            terminals=terminals,
            timeouts=timeouts,
            log_probs=log_probs,
        )
        timeouts_marked = timeouts is not None or trajectory is not None
        ends = arrays.find_ends(terminals, timeouts, trajectory, max_steps)
        offsets = np.concatenate([[0], ends + 1]).astype(np.int64)
        checks.only_at_ends("terminals", terminals, ends)
        if timeouts is None:
            timeouts = np.zeros(rows, bool)
            timeouts[ends] = True
            if trajectory is None:
                # Nothing says why the last rows end: the file may just stop there.
                timeouts[-1:] = max_steps is not None and (
                    offsets[-1] - offsets[-2] == max_steps
                )
        checks.only_at_ends("timeouts", timeouts, ends)
        timeouts &= ~terminals

        following, known = arrays.find_following(
            observations, ends, next_observations, final_observations, final_known, copy
        )
        codes, names = arrays.encode_sources(source, source_names, offsets)

        low, high = arrays.bounds(action_bounds, actions.shape[1])
        clipped = 0
        if clip:
            inside = np.clip(actions, low, high)
            clipped = int(np.sum((inside != actions) & np.isfinite(actions)))
            actions = inside
        return cls(
            observations=observations,
            actions=actions,
            rewards=rewards,
            next_observations=following,
            terminals=terminals,
            timeouts=timeouts,
            offsets=offsets,
            action_low=low,
            action_high=high,
            final_known=known,
            ids=np.arange(len(ends)),
            sources=codes,
            source_names=names,
            log_probs=log_probs,
            env_id=env_id,
            name=name,
            clipped=clipped,
            timeouts_marked=timeouts_marked,
        )

    # What it holds

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def transitions(self) -> int:
        return len(self.rewards)

    @property
    def observation_size(self) -> int:
        return self.observations.shape[1]

    @property
    def action_size(self) -> int:
        return self.actions.shape[1]

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    @cached_property
    def returns(self) -> np.ndarray:
        """[M] float64: undiscounted sum of rewards."""
        return np.add.reduceat(self.rewards.astype(np.float64), self.offsets[:-1])

    @cached_property
    def trajectory(self) -> np.ndarray:
        """[N] int32: the trajectory that each row belongs to."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.lengths)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the content: equal data has equal fingerprints, whatever its file.

        How it was read (the name, the positions `ids`, ...) is not content.
        """
        digest = hashlib.blake2b(digest_size=16)
        for field in fields(self):
            if field.name in NOT_CONTENT:
                continue
            value = getattr(self, field.name)
            digest.update(field.name.encode())
            if isinstance(value, np.ndarray):
                digest.update(f"{value.dtype.str}{value.shape}".encode())
                digest.update(np.ascontiguousarray(value).data)
            else:
                digest.update(repr(value).encode())
        return digest.hexdigest()

    def __repr__(self) -> str:
        sources = f", {len(self.source_names)} sources" if self.source_names else ""
        return (
            f"Trajectories({self.name!r}: {len(self):,} trajectories, "
            f"{self.transitions:,} transitions, observations {self.observation_size}, "
            f"actions {self.action_size}{sources})"
        )

    # Views: all keep `ids`, so a result can be traced to the data set as loaded

    def __getitem__(self, which: Index) -> "Trajectories":
        """Some trajectories: a number, a slice, numbers in any order, or a mask.

        A slice with step 1 shares memory; anything else copies the chosen rows.
        """
        if isinstance(which, slice) and which.step in (None, 1):
            start, stop, _ = which.indices(len(self))
            stop = max(start, stop)
            if start == stop:
                raise UserError("selection: expected at least one trajectory, got none")
            rows = slice(int(self.offsets[start]), int(self.offsets[stop]))
            return self._rows(
                rows, slice(start, stop), self.offsets[start : stop + 1] - rows.start
            )
        chosen = np.arange(len(self))[which]  # numpy's own rules and IndexError
        chosen = np.atleast_1d(chosen)
        if not len(chosen):
            raise UserError("selection: expected at least one trajectory, got none")
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        # Row j of the result is row (start of its trajectory) + (steps into it).
        rows = np.arange(offsets[-1]) + np.repeat(
            self.offsets[:-1][chosen] - offsets[:-1], lengths
        )
        return self._rows(rows, chosen, offsets)

    def __iter__(self) -> "Iterator[Trajectories]":
        return (self[m] for m in range(len(self)))

    def shuffle(self, seed: int = 0) -> "Trajectories":
        """The same trajectories in another order."""
        return self[np.random.default_rng(seed).permutation(len(self))]

    def renumbered(self) -> "Trajectories":
        """The same trajectories as a data set of its own: `ids` are positions in it."""
        view = self[:]
        object.__setattr__(view, "ids", _read_only(np.arange(len(self))))
        return view

    def split(
        self, share: float, seed: int = 0
    ) -> tuple["Trajectories", "Trajectories"]:
        """Hold out a share of the trajectories: (kept, held out), at least one each."""
        _check_share(share)
        if len(self) < 2:
            raise UserError(f"split: expected at least 2 trajectories, got {len(self)}")
        held = int(np.clip(round(share * len(self)), 1, len(self) - 1))
        order = np.random.default_rng(seed).permutation(len(self))
        return self[np.sort(order[held:])], self[np.sort(order[:held])]

    def split_within(
        self, share: float, seed: int = 0
    ) -> tuple["Trajectories", "Trajectories"]:
        """Hold out a share of each trajectory's steps: (kept, held out).

        Steps are drawn at random. Every trajectory keeps at least one step and gives
        at least one; those of a single step are absent from the second part: match
        trajectories by `ids`.
        Transitions stay whole, returns and lengths are those of the parts.
        """
        _check_share(share)
        give = np.maximum(1, np.round(share * self.lengths).astype(np.int64))
        give = np.minimum(give, self.lengths - 1)
        if not give.any():
            raise UserError(
                f"{self.name}: expected a trajectory of at least 2 steps, so that one "
                f"of them can be held out; the longest has {self.lengths.max()}"
            )
        held = self.shuffled_steps(seed) < np.repeat(give, self.lengths)
        return self._keep_rows(~held), self._keep_rows(held)

    def shuffled_steps(self, seed: int = 0) -> np.ndarray:
        """[N] int64: 0, 1, ... within each trajectory, in random order."""
        random = np.random.default_rng(seed).random(self.transitions)
        order = np.lexsort((random, self.trajectory))
        place = np.empty(self.transitions, np.int64)
        place[order] = np.arange(self.transitions) - np.repeat(
            self.offsets[:-1], self.lengths
        )
        return place

    def bootstrappable(self) -> "Trajectories":
        """Without the rows whose next observation is needed but not known.

        A method that learns values looks at the next observation of every row that is
        not terminal. Formats that keep neither it nor T+1 observations lose it at each
        time-out; those rows are good for cloning and must not be bootstrapped from.
        """
        ends = self.offsets[1:] - 1
        bad = ends[~self.final_known & ~self.terminals[ends]]
        if not len(bad):
            return self
        keep = np.ones(self.transitions, bool)
        keep[bad] = False
        return self._keep_rows(keep)

    def next_known(self) -> "Trajectories":
        """Without the rows whose next observation is not known, terminal or not.

        For methods that predict it.
        """
        ends = self.offsets[1:] - 1
        if self.final_known.all():
            return self
        keep = np.ones(self.transitions, bool)
        keep[ends[~self.final_known]] = False
        return self._keep_rows(keep)

    def _keep_rows(self, keep: np.ndarray) -> "Trajectories":
        lengths = np.add.reduceat(keep, self.offsets[:-1], dtype=np.int64)
        stay = lengths > 0
        if not stay.any():
            raise UserError("selection: expected at least one transition, got none")
        view = self._rows(
            np.flatnonzero(keep),
            np.flatnonzero(stay),
            np.concatenate([[0], np.cumsum(lengths[stay])]),
        )
        # Before a dropped row stands one whose next observation is in the data.
        last_kept = keep[self.offsets[1:] - 1][stay]
        known = view.final_known | ~last_kept
        object.__setattr__(view, "final_known", _read_only(known))
        return view

    def _rows(self, rows: Any, which: Any, offsets: np.ndarray) -> "Trajectories":
        """A view whose parts are valid because ours are: no check is run again."""
        view = object.__new__(Trajectories)
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name in PER_TRANSITION:
                value = _read_only(value[rows])
            elif value is not None and field.name in PER_TRAJECTORY:
                value = _read_only(value[which])
            elif field.name == "offsets":
                value = _read_only(offsets)
            object.__setattr__(view, field.name, value)
        return view


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _check_share(share: float) -> None:
    if not 0 < share < 1:
        raise UserError(f"share: expected a number between 0 and 1, got {share}")
