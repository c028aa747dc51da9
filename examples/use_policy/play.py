"""Plays a policy that was trained from the state vector, without Replicant.

    python play.py RUN [--episodes 10] [--seed 0]

Needs numpy, safetensors and dm_control. Reads the newest checkpoint of
the run in folder RUN and prints the return of each episode in dm_control, with
its models: a run with task.mjcf or task.suite_folder had others.
"""

import argparse
import pathlib
import re
import sys

import numpy as np
from safetensors.numpy import load_file


def setting(run, section, key):
    """The value of a key of config.yaml, which holds one key a line."""
    text = (run / "config.yaml").read_text()
    lines = re.search(rf"^{section}:\n((?: .*\n)*)", text, re.MULTILINE)[1]
    return re.search(rf"^ +{key}: (.*)$", lines, re.MULTILINE)[1].strip('"')


def observed_arrays(run):
    """The names in task.observations, the arrays that the policy sees; none: all."""
    text = (run / "config.yaml").read_text()
    found = re.search(r"^task:\n(?:  .*\n)*?  observations: \[(.*)\]$", text, re.MULTILINE)
    return re.findall(r"[^\s,\"]+", found[1]) if found else []


def check_models(run):
    """SystemExit for a run with a model of its own; a folder may be a copy of dm_control's."""
    if setting(run, "task", "mjcf"):
        raise SystemExit(f"{run}: task.mjcf names a model of its own; this example plays dm_control's")
    if folder := setting(run, "task", "suite_folder"):
        print(f"{run}: task.suite_folder is {folder}; this example plays dm_control's models",
              file=sys.stderr)


class Policy:
    """The mean action in [-1, 1]^A for a state vector, as the learner saved it.

    Layers 0 and 1 are a linear map and a layer norm, then tanh. Layers 3, 5,
    ... are linear maps, all but the last with the network's activation. The
    action is the tanh of the last one. With agent.observations.normalize: running the numbers of
    the state are normalized first.
    """

    def __init__(self, run):
        checkpoints = [p.parent for p in run.glob("checkpoints/*/manifest.yaml")]
        if not checkpoints:
            raise SystemExit(f"{run}: no whole checkpoint")
        variables = load_file(max(checkpoints) / "variables.safetensors")
        # the moving average acts where there is one (agent.average_decay)
        head = "average/policy/head/"
        if not any(name.startswith(head) for name in variables):
            head = "policy/head/"
        self.layers = {
            name[len(head):]: value
            for name, value in variables.items()
            if name.startswith(head)
        }
        if any(name.startswith("encoder/") for name in variables):
            raise SystemExit(f"{run}: a policy with an encoder, from pixels or with "
                             "agent.networks.shared_embedding; this example plays others")
        self.normalization = None
        if "observations/mean" in variables:
            floor, clip = (float(setting(run, "agent", key)) for key in ("min_deviation", "clip"))
            deviation = np.maximum(np.sqrt(variables["observations/variance"]), np.float32(floor))
            self.normalization = variables["observations/mean"], deviation, clip
        self.activation = {
            "relu": lambda x: np.maximum(x, 0.0),
            "elu": lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
        }[setting(run, "agent", "activation")]

    def linear(self, index, x):
        return self.layers[f"{index}/weight"] @ x + self.layers[f"{index}/bias"]

    def __call__(self, observation):
        if self.normalization is not None:
            mean, deviation, clip = self.normalization
            observation = np.clip((observation - mean) / deviation, -clip, clip)
        x = self.linear(0, observation)
        x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
        x = np.tanh(self.layers["1/weight"] * x + self.layers["1/bias"])
        last = max(int(name.split("/")[0]) for name in self.layers)
        for index in range(3, last, 2):
            x = self.activation(self.linear(index, x))
        return np.tanh(self.linear(last, x))


def play(policy, environment, action_repeat, names=()):
    """Returns the return of one episode: the sum of the rewards of all control steps.

    names  of the arrays that the policy sees, in their order; none: all
    """
    spec = environment.action_spec()
    step = environment.reset()
    total = 0.0
    while not step.last():
        observation = np.concatenate(
            [np.ravel(step.observation[name]) for name in names or step.observation]
        ).astype(np.float32)
        action = policy(observation)
        action = spec.minimum + 0.5 * (action + 1.0) * (spec.maximum - spec.minimum)
        for _ in range(action_repeat):
            step = environment.step(action)
            total += step.reward
            if step.last():
                break
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    check_models(options.run)
    from dm_control import suite

    domain, name = setting(options.run, "task", "name").split("-", maxsplit=1)
    action_repeat = int(setting(options.run, "task", "action_repeat"))
    environment = suite.load(domain, name, task_kwargs={"random": options.seed})
    policy = Policy(options.run)
    names = observed_arrays(options.run)
    returns = [play(policy, environment, action_repeat, names) for _ in range(options.episodes)]
    for value in returns:
        print(f"return {value:.1f}")
    print(f"mean   {np.mean(returns):.1f}")


if __name__ == "__main__":
    main()
