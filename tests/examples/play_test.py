"""examples/use_policy/play.py shows a policy what the run's configuration says."""

import collections
import contextlib
import io
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples/use_policy"))
import play  # noqa: E402

CONFIG = """\
run:
  name: cartpole
task:
  name: cartpole-swingup
  mjcf: "{mjcf}"
  suite_folder: "{suite_folder}"
  observations: {observations}
  action_repeat: 8
  disturbances:
    delays:
      observations: 0
agent:
  observations:
    normalize: none
"""


def observe(step):
    observation = collections.OrderedDict(position=np.array([1.0, 2.0]), velocity=np.array(3.0))
    return types.SimpleNamespace(last=lambda: step == 1, observation=observation, reward=0.5)


class Environment:
    def action_spec(self):
        return types.SimpleNamespace(minimum=np.array([-2.0]), maximum=np.array([2.0]))

    def reset(self):
        return observe(0)

    def step(self, action):
        return observe(1)


class PlayTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_folder = pathlib.Path(folder.name)

    def write(self, observations="[]", mjcf="", suite_folder=""):
        (self.run_folder / "config.yaml").write_text(
            CONFIG.format(observations=observations, mjcf=mjcf, suite_folder=suite_folder))
        return self.run_folder

    def seen_of(self, observations):
        seen = []

        def policy(observation):
            seen.append(observation.tolist())
            return np.zeros(1)

        names = play.observed_arrays(self.write(observations))
        self.assertEqual(play.play(policy, Environment(), 1, names), 0.5)
        return seen

    def test_a_policy_sees_the_runs_arrays_in_their_order(self):
        self.assertEqual(self.seen_of("[]"), [[1.0, 2.0, 3.0]])
        self.assertEqual(self.seen_of("[velocity, position]"), [[3.0, 1.0, 2.0]])
        self.assertEqual(self.seen_of('["velocity"]'), [[3.0]])

    def test_a_run_of_an_older_version_shows_all(self):
        file = self.write() / "config.yaml"
        file.write_text(file.read_text().replace("  observations: []\n", ""))
        self.assertEqual(play.observed_arrays(self.run_folder), [])

    def test_other_models_are_told(self):
        play.check_models(self.write())
        with self.assertRaisesRegex(SystemExit, "task.mjcf names a model of its own"):
            play.check_models(self.write(mjcf="model/model.xml"))
        with contextlib.redirect_stderr(io.StringIO()) as told:
            play.check_models(self.write(suite_folder="/replicant/suite"))
        self.assertIn("task.suite_folder is /replicant/suite; this example", told.getvalue())


    def main(self, *words):
        """What main() gives dm_control, shows the policy and prints."""
        loaded, seen = [], []

        def load(domain, name, task_kwargs):
            loaded.append((domain, name, task_kwargs))
            return Environment()

        def policy(observation):
            seen.append(observation.tolist())
            return np.zeros(1)

        suite = types.SimpleNamespace(load=load)
        modules = {"dm_control": types.SimpleNamespace(suite=suite)}
        with (mock.patch.dict(sys.modules, modules),
              mock.patch.object(play, "Policy", lambda run: policy),
              mock.patch.object(sys, "argv", ["play.py", str(self.run_folder), *words]),
              contextlib.redirect_stdout(io.StringIO()) as told):
            play.main()
        return loaded, seen, told.getvalue()

    def test_the_program_plays_what_the_configuration_says(self):
        self.write("[velocity, position]")
        loaded, seen, told = self.main("--episodes", "2", "--seed", "7")
        self.assertEqual(loaded, [("cartpole", "swingup", {"random": 7})])
        self.assertEqual(seen, [[3.0, 1.0, 2.0]] * 2)
        self.assertEqual(told, "return 0.5\nreturn 0.5\nmean   0.5\n")
        self.write(mjcf="model/model.xml")
        with self.assertRaisesRegex(SystemExit, "task.mjcf names a model of its own"):
            self.main()


if __name__ == "__main__":
    unittest.main()
