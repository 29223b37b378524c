"""The paper's phase 1 written plainly in PyTorch, to compare benchmarks/fit.py with.

Needs nothing of ours and runs in an environment of its own: torch, eager, Adam's own
implementation, the same networks, batch and losses. Prints seconds per update.
Usage: python benchmarks/fit_torch.py [--updates N]
"""

import argparse
import copy
import time

STATES, ACTIONS, CODES, TRAJECTORIES, BATCH, ROWS = 17, 6, 10, 1000, 256, 100_000


def main() -> None:
    import torch
    from torch import nn
    from torch.nn import functional as f

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=50)
    updates = parser.parse_args().updates
    torch.manual_seed(0)

    def trunk(inputs: int, width: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(inputs, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.LayerNorm(width, eps=1e-3),
        )

    def head(width: int, out: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(width + 8, width), nn.ReLU(), nn.Linear(width, out)
        )

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk, self.head = trunk(STATES, 200), head(200, 2 * ACTIONS)
            self.E = nn.Parameter(torch.empty(CODES, 8).uniform_(-0.05, 0.05))
            self.W = nn.Parameter(torch.empty(TRAJECTORIES, 8).uniform_(-0.05, 0.05))

    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk, self.head = trunk(STATES + ACTIONS, 300), head(300, 1)
            self.H = nn.Parameter(torch.empty(CODES, 8).uniform_(-0.05, 0.05))

        def forward(self, s, a, z):
            h = f.normalize(self.H, dim=-1)[z]
            features = self.trunk(torch.cat([s, a], -1))
            return self.head(torch.cat([features, h], -1))[:, 0]

    policy, critics = Policy(), nn.ModuleList([Critic(), Critic()])
    targets = copy.deepcopy(critics).requires_grad_(False)
    policy_adam = torch.optim.Adam(policy.parameters(), 5e-5, eps=1e-7)
    critic_adam = torch.optim.Adam(critics.parameters(), 1e-4, eps=1e-7)
    data = torch.rand(ROWS, 2 * STATES + ACTIONS + 2) * 2 - 1
    trajectory = torch.arange(ROWS) // (ROWS // TRAJECTORIES)
    sizes = [STATES, ACTIONS, 1, STATES, 1]

    def log_prob(outputs, actions):
        mean, log_std = outputs.chunk(2, -1)
        log_std = log_std.clamp(-10, 10)
        u = torch.atanh(actions)
        normal = -0.5 * ((u - mean) * torch.exp(-log_std)) ** 2 - log_std - 0.9189385
        return (normal - torch.log1p(-(actions**2))).sum(-1)

    def update() -> None:
        rows = torch.randint(ROWS, (BATCH,))
        s, a, r, following, terminal = data[rows].split(sizes, -1)
        a, m = a.clamp(-0.999, 0.999), trajectory[rows]
        with torch.no_grad():
            for t, p in zip(targets.parameters(), critics.parameters()):
                t.lerp_(p, 0.001)
            w, E = f.normalize(policy.W[m], dim=-1), f.normalize(policy.E, dim=-1)
            z = (w @ E.T).argmax(-1)
            outputs = policy.head(torch.cat([policy.trunk(following), E[z]], -1))
            mean, log_std = outputs.chunk(2, -1)
            noise = torch.randn_like(mean)
            after = torch.tanh(mean + log_std.clamp(-10, 10).exp() * noise)
            after = after.clamp(-0.999, 0.999)
            q = torch.min(*(target(following, after, z) for target in targets))
            y = r[:, 0] + 0.99 * (1 - terminal[:, 0]) * q
        loss = sum(((critic(s, a, z) - y) ** 2).mean() for critic in critics)
        critic_adam.zero_grad()
        loss.backward()
        critic_adam.step()
        w, E = f.normalize(policy.W[m], dim=-1), f.normalize(policy.E, dim=-1)
        e, features = E[z], policy.trunk(s)
        by_code = log_prob(policy.head(torch.cat([features, e], -1)), a)
        by_trajectory = log_prob(policy.head(torch.cat([features, w], -1)), a)
        loss = (-by_code - by_trajectory + 0.1 * (1 - (w * e).sum(-1))).mean()
        policy_adam.zero_grad()
        loss.backward()
        policy_adam.step()

    best = float("inf")
    for trial in range(4):
        started = time.perf_counter()
        for _ in range(updates):
            update()
        if trial:  # the first one warms up
            best = min(best, time.perf_counter() - started)
    print(best / updates)


if __name__ == "__main__":
    main()
