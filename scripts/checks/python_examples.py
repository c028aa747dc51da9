"""Runs the programs of examples/python and the trainings of docs/python.md as a user does, each for
some seconds, in the present folder. scripts/checks/examples --python calls it by an interpreter that
has the package with the extra train.

    python python_examples.py [--seconds 5] [NAME...]

NAME is a part of the names of those to run. Programs whose packages are missing are named and left out; a program that is not in the table below
is an error. scripts/checks/python_environments runs metaworld_pixels.py.
"""

import argparse
import importlib.util
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = """<mujoco>
  <worldbody>
    <light pos="0 0 3"/><geom type="plane" size="2 2 .1"/>
    <body pos="0 0 1"><freejoint/><geom type="box" size=".1 .2 .3"/></body>
  </worldbody>
</mujoco>"""


def say(text):
    print(f"checks/examples: {text}", flush=True)


def programs(seconds):
    """{file: (arguments, packages)}, in their order."""
    def training(name):
        return ["--folder", f"runs/{name}", "--seconds", str(seconds)]

    return {
        "random_search.py": (["--iterations", "3"], []),
        "drqv2.py": (["--frames", "1000", "--size", "24", "--random_steps", "400"],
                     ["torch"]),
        "own_environment.py": (training("pole"), []),
        "images_and_state.py": (training("cursor"), []),
        "two_cameras.py": (training("arm"), ["mujoco"]),
        "gymnasium_pixels.py": (training("pixels"), ["mujoco", "imageio"]),
        "draw_batch.py": (["model.xml", "--states", "8"], ["mujoco"]),
        "watch_policy.py": (["runs/cartpole", "--episodes", "1"], ["mujoco"]),
        "metaworld_pixels.py": ([], ["metaworld"]),
    }


def blocks():
    """The blocks `py` of docs/python.md."""
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    return re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def scripts(seconds):
    """{name: text}: the blocks of the page, with the robot and the observation that they leave to the
    reader, and shorter."""
    found = blocks()

    def block(start):
        matching = [text for text in found if text.startswith(start)]
        if len(matching) != 1:
            sys.exit(f"docs/python.md: {len(matching)} blocks begin with {start!r}; want one")
        return re.sub(r'("learner\.limits\.max_(?:seconds|frames)": )[\d_]+',
                      lambda match: match[1] + (str(seconds) if "seconds" in match[1] else "2000"),
                      matching[0])

    robot = "import gymnasium\ndef MyRobot(): return gymnasium.make('Pendulum-v1')\n"
    # a policy needs an evaluation or a checkpoint, which the page leaves some time for
    wait = "run.stop()"
    return {
        "cartpole": "import replicant\n" + block('run = replicant.train("cartpole_swingup_state", {"le')
                    .replace(wait, "run.wait(); " + wait),
        "policy": block("import replicant\npolicy"),
        "my_robot": robot + block("# my_robot.py"),
        "robot": "import numpy as np, replicant\nobservation = np.zeros(3)\n" + block("import my_robot")
                 + "\nassert run.evaluations()['return'].size > 0\n",
        "cheetah": block("# cheetah.py"),
        "train_cheetah": "import replicant\n" + block("import cheetah") + "run.wait()\n",
        "sb3": block("import replicant.envs").replace("learn(5_000)", "learn(200)"),
    }


def commands(seconds):
    """{name: (command, packages)}."""
    python = sys.executable
    replicant = [python, "-P", "-m", "replicant"]
    run = {}
    for name in scripts(seconds):
        packages = {"sb3": ["stable_baselines3"], "train_cheetah": ["mujoco"],
                    "cartpole": ["mujoco"], "policy": ["mujoco"]}.get(name, [])
        run[f"docs/python.md, {name}"] = ([python, f"{name}.py"], packages)
    listed = programs(seconds)
    here = {path.name for path in (ROOT / "examples/python").glob("*.py")}
    if here != {*listed}:
        sys.exit(f"examples/python: {', '.join(sorted(here ^ {*listed}))}: not in both the folder and "
                 f"{pathlib.Path(__file__).name}")
    for name, (arguments, packages) in listed.items():
        run[name] = ([python, str(ROOT / "examples/python" / name), *arguments], packages)
    run["replicant train --list"] = ([*replicant, "train", "--list"], [])
    run["replicant train"] = ([*replicant, "train", "cartpole_swingup_state", "--set",
                               f"learner.limits.max_seconds={seconds}"], ["mujoco"])
    run["replicant check-env"] = ([*replicant, "check-env", "my_robot:make", "--seconds", "5"], [])
    run["replicant benchmark"] = ([*replicant, "benchmark", "cartpole-swingup", "--seconds", "30"],
                                  ["mujoco"])
    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("names", nargs="*", default=[""])
    arguments = parser.parse_args()
    seconds = arguments.seconds
    pathlib.Path("model.xml").write_text(MODEL, encoding="utf-8")
    for name, text in scripts(seconds).items():
        pathlib.Path(f"{name}.py").write_text(text, encoding="utf-8")
    failed = 0
    for name, (command, packages) in commands(seconds).items():
        if not any(part in name for part in arguments.names):
            continue
        missing = [package for package in packages if importlib.util.find_spec(package) is None]
        if missing:
            say(f"{name}: left out, without {', '.join(missing)}")
            continue
        begin = time.monotonic()
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        took = time.monotonic() - begin
        if ended.returncode != 0:
            print((ended.stdout + ended.stderr)[-4000:], file=sys.stderr)
            say(f"{name}: failed")
            failed = 1
            continue
        last = ended.stdout.strip().rpartition("\n")[2]
        say(f"{name}: {took:.0f} s; {last:.80}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
