"""bench/run/learning trains by a stand-in for the fleet, and compares what it keeps."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import platform
import shutil
import sys
import tempfile
import textwrap
import time
import unittest

SOURCES = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCES / "bench/run"))


def load(name):
    loader = importlib.machinery.SourceFileLoader(name, str(SOURCES / "bench/run" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


learning = load("learning")

PUBLISHED = """# of others
task,seed,frames,minutes,updates,return
walker-run,MR.Q,100000,,,165
cheetah-run,DrM,100000,,,368
"""
# evaluates every 20,000 frames but not at the end, and refuses to resume a complete run as the fleet does
FLEET = """\
    #!{python}
    import json, os, pathlib, signal, sys, time
    words = sys.argv[1:]
    keys = dict(word.split("=", 1) for word in words if "=" in word)
    is_resumed = words[0] == "--resume"
    folder = pathlib.Path(words[1] if is_resumed else keys["run.dir"])
    folder.mkdir(parents=True, exist_ok=True)
    end = int(keys["learner.limits.max_frames"])
    with open(folder / "calls", "a") as calls:
        print(*words, file=calls)
    (folder / "environment.json").write_text(json.dumps(dict(os.environ)))
    curve = folder / "evaluations.jsonl"
    done = len(curve.read_text().splitlines()) * 20000 if is_resumed else 0
    if is_resumed and json.loads((folder / "learner.jsonl").read_text())["frames"] >= end:
        sys.exit("fleet: the run is complete")
    (folder / "state.yaml").write_text("status: complete\\n")
    is_stopped = False
    def stop(*_):
        global is_stopped
        is_stopped = True
    signal.signal(signal.SIGINT, stop)
    with open(curve, "a") as file:
        for frames in range(done + 20000, end + 1, 20000):
            print(json.dumps(dict(seconds=frames / 500, step=frames // 2, frames=frames,
                                  **{{"return": frames / 1000}})), file=file, flush=True)
            while keys.get("run.name") == "endless" and frames >= 60000 and not is_stopped:
                time.sleep(0.02)
            if is_stopped:
                end = frames
                break
    (folder / "learner.jsonl").write_text(json.dumps(
        dict(step=end // 2, seconds=end / 500, frames=end)) + "\\n")
"""


class LearningTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.results = self.root / "bench/results/learning"
        self.results.mkdir(parents=True)
        (self.results / "published.csv").write_text(PUBLISHED)
        (self.root / "recipe.yaml").write_text("run: {name: recipe}\n")
        (self.root / "configs").mkdir()
        (self.root / "configs/pixels_representation_gpu.yaml").write_text("run: {name: recipe}\n")
        self.write_fleet(self.root / "build/release/bin")

    def write_fleet(self, folder):
        folder.mkdir(parents=True)
        (folder / "fleet").write_text(textwrap.dedent(FLEET.format(python=sys.executable)))
        os.chmod(folder / "fleet", 0o755)

    def of_run(self, name, file):
        return (self.root / "build/learning" / name / file).read_text()

    def call(self, *words):
        """Exit code and output of a call."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = learning.main(list(map(str, words)), self.root)
        return code, output.getvalue()

    def train(self, *words):
        return self.call("run", "arm", self.root / "recipe.yaml", *words)

    def test_the_published_curves_are_where_it_looks_for_them(self):
        self.assertTrue((SOURCES / learning.RESULTS / "published.csv").is_file())

    def test_a_study_keeps_its_curves_and_prints_them_beside_published_ones(self):
        code, output = self.train("--tasks", "walker-run", "--seeds", 1, 2,
                                  "--frames", 100_000, "--jobs", 2)
        self.assertEqual(code, 0)
        lines = (self.results / "arm.csv").read_text().splitlines()
        self.assertIn("walker-run,2,100000,3.33,50000,100.0", lines)
        self.assertEqual(len([line for line in lines if line.startswith("walker-run,1,")]), 5)
        row = next(line for line in output.splitlines() if line.startswith("walker-run"))
        self.assertEqual(row.split(), ["walker-run", "100", "(100-100;", "2)", "165"])

    def test_another_recipe_under_the_same_name_is_refused(self):
        words = ("--tasks", "walker-run", "--frames", 20_000)
        self.train(*words)
        with self.assertRaisesRegex(SystemExit, "give these runs another NAME"):
            self.train(*words, "--set", "task.action_repeat=4")

    def test_another_machines_curves_take_no_runs_of_another_recipe(self):
        words = ("--tasks", "walker-run", "--frames", 20_000)
        self.train(*words)
        shutil.rmtree(self.root / "build/learning")
        (self.root / "recipe.yaml").write_text("agent: {average_decay: 0.5}\n")
        with self.assertRaisesRegex(SystemExit, "another recipe:\n  kept: *configuration"):
            self.train(*words)
        (self.root / "recipe.yaml").write_text("run: {name: recipe}\n")
        programs = self.root / "build/release/bin"
        shutil.copy(programs / "fleet", programs / "lockstep")
        with self.assertRaisesRegex(SystemExit, "given: .* --program lockstep"):
            self.train(*words, "--program", "lockstep")
        self.assertEqual(self.train(*words)[0], 0)

    def test_the_same_command_continues_and_leaves_complete_runs_alone(self):
        words = ("--tasks", "walker-run", "--frames")
        for frames, calls in ((50_000, 1), (50_000, 1), (80_000, 2)):
            code, _ = self.train(*words, frames)
            self.assertEqual(code, 0)
            made = self.of_run("arm", "walker-run-1/calls")
            self.assertEqual(len(made.splitlines()), calls)
        self.assertIn("--resume", made.splitlines()[1])

    def test_a_run_that_fails_is_named_with_its_last_line(self):
        program = self.root / "build/release/bin/fleet"
        program.write_text("#!/bin/sh\necho no device\nexit 3\n")
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            code, _ = self.train("--tasks", "walker-run")
        self.assertEqual(code, 1)
        self.assertIn("walker-run-1.log: the run ended with 3: no device", errors.getvalue())

    def test_a_device_trains_both_tasks(self):
        code, output = self.call("device", "--frames", 100_000, "--set", "actors.count=2")
        self.assertEqual(code, 0)
        lines = output.splitlines()
        self.assertEqual([line.split() for line in lines[:3]],
                         [["100,000", "frames", "representation_cuda", "MR.Q", "DrM"],
                          ["cheetah-run", "100", "368"], ["walker-run", "100", "165"]])
        self.assertEqual(lines[-2:], [
            f"{task} seed 1: 100,000 of 100,000 frames, 3.3 minutes, 250.0 updates/s, return 100"
            for task in ("walker-run", "cheetah-run")])
        words = self.of_run("representation_cuda", "walker-run-1/calls").split()
        self.assertEqual(words[1], str(self.root / "configs/pixels_representation_gpu.yaml"))
        # the last word counts
        self.assertLess(words.index("learner.replication.backend=cuda"),
                        words.index("actors.count=2"))

    def test_a_device_stops_in_time_and_continues(self):
        words = ("device", "--frames", 100_000, "--tasks", "walker-run", "--backend", "cpu",
                 "--minutes", 0.05, "--set", "run.name=endless")
        began = time.monotonic()
        code, output = self.call(*words)
        self.assertLess(time.monotonic() - began, 60)
        self.assertEqual(code, 0)
        self.assertEqual(output.splitlines()[0], "no run has come to 100,000 frames")
        self.assertIn("walker-run seed 1: 60,000 of 100,000 frames, 2.0 minutes", output)
        code, output = self.call(*words)
        self.assertIn("walker-run seed 1: 100,000 of 100,000 frames", output)
        self.assertIn("--resume", self.of_run("representation_cpu", "walker-run-1/calls"))

    def test_a_device_that_has_not_begun_says_so(self):
        (self.root / "build/release/bin/fleet").write_text("#!/bin/sh\nexit 3\n")
        with contextlib.redirect_stderr(io.StringIO()):
            code, output = self.call("device", "--tasks", "walker-run")
        self.assertEqual((code, output), (1, "walker-run seed 1: no update yet\n"))
        self.assertFalse((self.results / "representation_cuda.csv").exists())

    def test_a_bundle_has_its_own_programs_libraries_and_models(self):
        (self.root / "MANIFEST.json").write_text(json.dumps(
            {"glibc": platform.libc_ver()[1], "machine": platform.machine()}))
        shutil.move(self.root / "build/release/bin", self.root / "bin")
        code, _ = self.call("device", "--frames", 20_000, "--tasks", "walker-run")
        self.assertEqual(code, 0)
        environment = json.loads(self.of_run("representation_cuda",
                                             "walker-run-1/environment.json"))
        self.assertEqual(environment["LD_LIBRARY_PATH"].split(":")[0], str(self.root / "lib"))
        self.assertEqual(environment["REPLICANT_SUITE_MODELS"], str(self.root / "models"))


if __name__ == "__main__":
    unittest.main()
