"""DrQ-v2 in one file: PyTorch learns from pixels, with the environments and the replay of this
package.

    python drqv2.py [--task cartpole-balance] [--frames 100000] [--size 84] [--seed 1]

The replay makes the n-step transitions and stacks the frames; each frame is stored once. Needs
PyTorch: pip install torch.

Source: arXiv:2107.09645. Smaller than there: the linear layers have 256 units.
"""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from replicant import envs, replay

STACK, REPEAT, N_STEP, DISCOUNT, BATCH, SHIFT = 3, 2, 3, 0.99, 128, 4


class Encoder(nn.Module):
    """Frames u8 [B, STACK, size, size, 3] -> features [B, F]."""

    def __init__(self, size):
        super().__init__()
        layers, channels = [], 3 * STACK
        for stride in (2, 1, 1, 1):
            layers += [nn.Conv2d(channels, 32, 3, stride=stride), nn.ReLU()]
            channels = 32
        self.layers = nn.Sequential(*layers)
        with torch.no_grad():
            self.num_features = self.layers(torch.zeros(1, 3 * STACK, size, size)).numel()

    def forward(self, frames):
        pixels = frames.permute(0, 1, 4, 2, 3).flatten(1, 2).float() / 255 - 0.5
        return self.layers(pixels).flatten(1)


class Head(nn.Module):
    def __init__(self, num_features, num_actions, num_outputs, hidden=256):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(num_features, 50), nn.LayerNorm(50), nn.Tanh())
        self.layers = nn.Sequential(nn.Linear(50 + num_actions, hidden), nn.ReLU(),
                                    nn.Linear(hidden, hidden), nn.ReLU(),
                                    nn.Linear(hidden, num_outputs))

    def forward(self, features, *action):
        return self.layers(torch.cat([self.trunk(features), *action], dim=1))


def random_shift(frames):
    """Moves every stack by up to SHIFT pixels; the border is repeated."""
    size = frames.shape[2]
    steps = torch.randint(-SHIFT, SHIFT + 1, (2, len(frames), 1))
    rows, columns = (torch.arange(size) + steps).clamp(0, size - 1)
    index = torch.arange(len(frames))[:, None, None]
    # [B, size, size, STACK, 3] -> [B, STACK, size, size, 3]
    return frames.movedim(1, 3)[index, rows[:, :, None], columns[:, None]].movedim(3, 1)


class Agent:
    def __init__(self, size, num_actions):
        self.encoder = Encoder(size)
        features = self.encoder.num_features
        self.actor = Head(features, 0, num_actions)
        self.critics = nn.ModuleList(Head(features, num_actions, 1) for _ in range(2))
        self.targets = nn.ModuleList(Head(features, num_actions, 1) for _ in range(2))
        self.targets.load_state_dict(self.critics.state_dict())
        self.critic_optimizer = torch.optim.Adam(
            [*self.encoder.parameters(), *self.critics.parameters()], lr=3e-4)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=3e-4)

    def choose(self, features, scale):
        """Actions with noise clipped at 0.3."""
        mean = torch.tanh(self.actor(features))
        noise = (torch.randn_like(mean) * scale).clamp(-0.3, 0.3)
        return (mean + noise).clamp(-1, 1)

    @torch.no_grad()
    def act(self, observation, scale):
        """u8 [size, size, 3 STACK] -> action [A] in [-1, 1]."""
        frames = torch.from_numpy(np.stack(np.split(observation, STACK, axis=2)))[None]
        mean = torch.tanh(self.actor(self.encoder(frames)))
        return (mean + torch.randn_like(mean) * scale).clamp(-1, 1)[0].numpy()

    def update(self, batch, scale):
        """One update of everything; returns the critics' loss."""
        reward, discount = (torch.from_numpy(x)[:, None] for x in (batch.reward, batch.discount))
        action = torch.from_numpy(batch.action)
        with torch.no_grad():
            features = self.encoder(random_shift(torch.from_numpy(batch.next_frames)))
            chosen = self.choose(features, scale)
            value = torch.min(*(critic(features, chosen) for critic in self.targets))
            target = reward + discount * value
        features = self.encoder(random_shift(torch.from_numpy(batch.frames)))
        loss = sum(F.mse_loss(critic(features, action), target) for critic in self.critics)
        self.critic_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.critic_optimizer.step()
        features = features.detach()
        chosen = self.choose(features, scale)
        actor_loss = -torch.min(*(critic(features, chosen) for critic in self.critics)).mean()
        self.actor_optimizer.zero_grad(set_to_none=True)
        actor_loss.backward()
        self.actor_optimizer.step()
        with torch.no_grad():
            for target, source in zip(self.targets.parameters(), self.critics.parameters()):
                target.lerp_(source, 0.01)
        return float(loss.detach())


def train(task, frames, size=84, seed=1, random_steps=1000, decay_steps=50_000):
    """Returns [(frames, return of a training episode), ...]."""
    torch.manual_seed(seed)
    env = envs.make(task, pixels=(size, size), frame_stack=STACK, action_repeat=REPEAT, seed=seed)
    space = env.action_space
    middle, half = (space.high + space.low) / 2, (space.high - space.low) / 2
    agent = Agent(size, space.shape[0])
    signature = replay.Signature(observation=None, action=(space.shape, "float32"),
                                 frame=((size, size, 3), "uint8"))
    table = {"sampler": "uniform", "n_step": N_STEP, "discount": DISCOUNT, "stack": STACK}
    rng, history, start = np.random.default_rng(seed), [], time.perf_counter()
    with replay.Replay.start(signature, tables={"default": table}) as service:
        writer, reader = service.writer(), None
        step = 0
        while step * REPEAT < frames:
            observation, _ = env.reset()
            writer.begin()
            total, is_over = 0.0, False
            while not is_over:
                scale = max(0.1, 1 - 0.9 * step / decay_steps)
                action = (rng.uniform(-1, 1, space.shape) if step < random_steps
                          else agent.act(observation, scale)).astype(np.float32)
                newest = np.ascontiguousarray(observation[..., -3:])
                observation, reward, terminated, truncated, _ = env.step(middle + half * action)
                writer.append(None, action, reward, 0.0 if terminated else 1.0, frame=newest)
                total += reward
                is_over = terminated or truncated
                step += 1
                if step > random_steps and step % 2 == 0:
                    if reader is None:
                        writer.flush()
                        reader = service.reader(batch_size=BATCH)
                    agent.update(reader.sample(), scale)
            writer.end(None, frame=np.ascontiguousarray(observation[..., -3:]))
            history.append((step * REPEAT, total))
            print(f"{step * REPEAT} frames: return {total:.1f}, "
                  f"{time.perf_counter() - start:.0f} s", flush=True)
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="cartpole-balance")
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=84, help="of the pixels")
    parser.add_argument("--random_steps", type=int, default=1000, help="before the first update")
    parser.add_argument("--seed", type=int, default=1)
    train(**vars(parser.parse_args()))
