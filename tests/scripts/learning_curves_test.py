"""bench/run/learning_curves.py reads curves at marks and over seeds."""

import json
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench/run"))
import learning_curves  # noqa: E402

PUBLISHED = """# of others
task,seed,frames,minutes,updates,return
walker-walk,MR.Q,100000,,,568
walker-walk,MR.Q,500000,,,953
hopper-hop,MR.Q,100000,,,1
"""


def write_runs(folder, returns):
    """Evaluations every 20,000 frames and minute, returns by TASK-SEED."""
    for run, values in returns.items():
        (folder / run).mkdir(parents=True)
        (folder / run / "evaluations.jsonl").write_text("".join(
            json.dumps({"seconds": 60 * i, "step": 100 * i, "frames": 20000 * i,
                        "return": value}) + "\n"
            for i, value in enumerate(values, start=1)))


class LearningCurvesTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def read(self, returns, axis="frames"):
        write_runs(self.folder / "arm", returns)
        ours, others = self.folder / "arm.csv", self.folder / "published.csv"
        learning_curves.write_csv(ours, self.folder / "arm", ["a command"])
        others.write_text(PUBLISHED)
        return learning_curves.read_csv([ours, others], axis)

    def test_a_table_compares_the_tasks_that_were_trained(self):
        studies = self.read({"walker-walk-1": [0, 100, 200, 300, 400],
                             "walker-walk-2": [0, 200, 400, 600, 800]})
        lines = learning_curves.table(studies).splitlines()
        self.assertEqual(lines[0].split(), ["100,000", "frames", "arm", "MR.Q"])
        self.assertEqual(lines[1].split(),
                         ["walker-walk", "600", "(400-800;", "2)", "568"])
        # no run has come to 200,000 frames, and none has trained the hopper
        self.assertEqual(len(lines), 3)

    def test_runs_of_another_machine_stay(self):
        path = self.folder / "arm.csv"
        for machine, seed, value in [("one", 1, 100), ("two", 2, 200),
                                     ("two", 2, 300)]:
            folder = self.folder / f"{machine}-{value}"
            write_runs(folder, {f"walker-walk-{seed}": [value]})
            learning_curves.write_csv(path, folder, ["a command", machine])
        comments, rows = learning_curves.read_lines(path)
        self.assertEqual(comments, ["a command", "one", "two"])
        self.assertEqual(rows, [
            ["walker-walk", "1", "20000", "1.00", "100", "100.0"],
            ["walker-walk", "2", "20000", "1.00", "100", "300.0"]])

    def test_minutes_are_an_axis_too(self):
        studies = self.read({"walker-walk-1": [0, 100, 200, 300, 400]}, "minutes")
        self.assertEqual(list(studies), ["arm"])
        table = learning_curves.table(studies, "minutes")
        self.assertIn("2 minutes", table)
        self.assertIn("100", table)

    def test_a_curve_is_read_between_its_points_and_not_beyond(self):
        curve = [(10, 100), (20, 200)]
        self.assertEqual(learning_curves.at(curve, 15), 150)
        self.assertEqual(learning_curves.at(curve, 20), 200)
        self.assertEqual(learning_curves.at(curve, 20.1), 200)
        self.assertIsNone(learning_curves.at(curve, 21))
        self.assertEqual(learning_curves.values_at({"mean": curve}, 15), [])

    def test_the_first_evaluation_over_a_score_is_named(self):
        self.read({"walker-walk-1": [0, 100, 200], "walker-walk-2": [50, 20, 30]})
        self.assertEqual(
            learning_curves.first_over([self.folder / "arm.csv"], 100).splitlines(),
            ["arm walker-walk seed 1: 100 after 40,000 frames, 2.0 minutes",
             "arm walker-walk seed 2: 100 after never; best 50"])

    def test_only_algorithms_with_figures_have_a_column(self):
        write_runs(self.folder / "arm", {"walker-run-1": [90, 100, 110, 120, 130] * 2})
        learning_curves.write_csv(self.folder / "arm.csv", self.folder / "arm", ["a command"])
        (self.folder / "published.csv").write_text(PUBLISHED + (
            "walker-run,DR.Q,100000,,,302\nwalker-run,TD-MPC2,200000,,,359\n"))
        tables = learning_curves.table(learning_curves.read_csv(
            [self.folder / "arm.csv", self.folder / "published.csv"])).split("\n\n")
        self.assertEqual([table.splitlines()[0].split() for table in tables],
                         [["100,000", "frames", "arm", "DR.Q"],
                          ["200,000", "frames", "arm", "TD-MPC2"]])
        self.assertEqual(tables[0].splitlines()[1].split(), ["walker-run", "130", "302"])

    def test_a_table_says_if_no_run_has_come_far_enough(self):
        studies = self.read({"walker-walk-1": [0, 100]})
        self.assertEqual(learning_curves.table(studies), "no run has come to 100,000 frames\n")

    def test_a_plot_has_a_line_per_seed_their_mean_and_published_points(self):
        studies = self.read({"walker-walk-1": [0, 100, 200], "walker-walk-2": [0, 200]})
        commands = learning_curves.panel(studies, "walker-walk")
        self.assertEqual(commands[0], "$d0 << END\n20 0\n40 100\n60 200\nEND")
        # the mean ends with the shorter curve
        mean = commands[2].splitlines()
        self.assertEqual((len(mean), mean[-2]), (53, "40 150"))
        self.assertEqual(commands[3], "$d3 << END\n100 568\n500 953\nEND")
        self.assertIn("set xrange [0:102.0]", commands)
        styles = commands[-1].removeprefix("plot ").split(", ")
        self.assertEqual([style.split()[4] for style in styles], ["lines"] * 3 + ["points"])
        self.assertIn("lw 3", styles[2])

    @unittest.skipIf(shutil.which("gnuplot") is None, "gnuplot is not installed")
    def test_gnuplot_draws_it(self):
        studies = self.read({"walker-walk-1": [0, 100, 200], "walker-walk-2": [0, 200]})
        learning_curves.plot(studies, self.folder / "curves.png")
        self.assertEqual((self.folder / "curves.png").read_bytes()[:4], b"\x89PNG")

    def test_a_plot_without_gnuplot_says_how_to_get_it(self):
        with mock.patch.object(shutil, "which", return_value=None):
            with self.assertRaisesRegex(SystemExit, "scripts/setup run installs it"):
                learning_curves.plot({}, self.folder / "curves.png")

    def test_a_configuration_is_read_with_its_bases_and_compared(self):
        (self.folder / "base.yaml").write_text("# said\nb: 1\n")
        run = self.folder / "run.yaml"
        run.write_text("base: base.yaml\n\na: 2  # why\n")
        (self.folder / "last.yaml").write_text("c: 3\n")
        both = self.folder / "both.yaml"
        both.write_text("base: [base.yaml, last.yaml]  # two\n")
        self.assertEqual(learning_curves.read_config(both)[1:], ["b: 1", "c: 3"])
        kept = {"config": learning_curves.read_config(run), "set": []}
        self.assertEqual(kept["config"], ["base: base.yaml", "a: 2  # why", "b: 1"])
        given = dict(kept, set=["a=3"])
        self.assertIn('+  "a=3"', learning_curves.difference(kept, given))
        self.assertEqual(learning_curves.difference(kept, kept), "")


if __name__ == "__main__":
    unittest.main()
