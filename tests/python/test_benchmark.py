"""`replicant benchmark`: its search for keys, and the file that a training takes."""

import re
import subprocess
import time

import pytest

from replicant import _benchmark, _config, _process
from replicant._run_files import flat_yaml


class Machine(_benchmark.Trials):
    """Trials on a machine whose rates are given by a function."""

    def __init__(self, rate, limit):
        self.done, self.longest_s = [], 1.0
        self._rate, self._limit = rate, limit

    def run(self, keys):
        threads = keys.get("learner.replication.threads", 2)
        actors = keys.get("actors.count", 1)
        self.done.append(_benchmark.Trial(threads, actors, self._rate(threads, actors), 0.0,
                                          self._limit(threads, actors)))
        return {}

    def tried(self):
        return [(trial.threads, trial.actors) for trial in self.done]


def search(rate, limit=lambda *_: "learner: actors wait 90%", seconds=1e6):
    machine = Machine(rate, limit)
    machine.run({})
    _benchmark._search(machine, time.monotonic() + seconds)
    return machine


@pytest.fixture(autouse=True)
def sixteen_processors(monkeypatch):
    monkeypatch.setattr(_benchmark, "num_processors", lambda: 16)


def test_threads_are_added_as_long_as_they_help():
    machine = search(lambda threads, _: {1: 60, 2: 100, 4: 150, 8: 151, 16: 300}[threads])
    assert machine.tried() == [(2, 1), (1, 1), (4, 1), (8, 1)]
    assert machine.best().keys == {"learner.replication.threads": 4, "actors.count": 1}


def test_fewer_threads_are_best_where_more_are_slower():
    machine = search(lambda threads, _: 100 / threads)
    assert machine.tried() == [(2, 1), (1, 1), (4, 1)]
    assert machine.best().threads == 1


def test_actors_are_added_where_the_learner_waits_for_them():
    machine = search(lambda threads, actors: min(50 * actors, 120),
                     lambda threads, actors: "actors: learner waits 40%" if actors < 4 else "none")
    # threads made no difference
    assert machine.tried() == [(2, 1), (1, 1), (4, 1), (2, 2), (2, 4)]
    assert machine.best().keys == {"learner.replication.threads": 2, "actors.count": 4}


def test_a_configuration_without_updates_is_never_the_best():
    machine = search(lambda threads, _: {2: 0.0, 1: 10.0, 4: 20.0, 8: 5.0}[threads])
    assert machine.best().threads == 4
    machine = search(lambda threads, _: {2: 10.0, 1: 0.0, 4: 0.0}[threads])
    assert machine.best().threads == 2


def test_the_search_ends_in_time(capsys):
    machine = search(lambda threads, _: threads, seconds=0.0)
    assert machine.tried() == [(2, 1)]
    assert "no time to try other values of learner.replication.threads" in capsys.readouterr().out


def run(*arguments, cwd):
    return subprocess.run([*_process.python("replicant"), *map(str, arguments)], cwd=cwd,
                          env=_process.environment(), check=False, timeout=280, text=True,
                          capture_output=True)


def test_a_benchmark_writes_keys_that_a_training_takes(tmp_path):
    ended = run("benchmark", "smoke", "--seconds", "5", "--set", "task.name=pendulum-swingup",
                cwd=tmp_path)
    assert ended.returncode == 0, ended
    rate, = re.findall(r"^ +\d+ +\d+ +([\d.]+) ", ended.stdout, re.MULTILINE)
    assert float(rate) > 1.0
    rows = re.findall(r"^(?:state|\d+x\d+ by raycast) +([\d,]+)", ended.stdout, re.MULTILINE)
    assert rows and all(int(steps.replace(",", "")) > 10 for steps in rows)
    assert "pendulum-swingup, control steps/s" in ended.stdout
    rendered = run("train", "benchmark.yaml", "--render", "slurm", "--to", "files", cwd=tmp_path)
    assert rendered.returncode == 0, rendered
    keys, = re.findall(r"^keys +(.*)$", ended.stdout, re.MULTILINE)
    config = flat_yaml(tmp_path / "files/config.yaml")
    assert {word.partition("=")[0] for word in keys.split() if "=" in word} == {
        "learner.replication.threads", "actors.count"}
    for word in keys.split():
        key, equals, value = word.partition("=")
        assert not equals or config[key] == value
    assert config["task.name"] == "pendulum-swingup"


def test_the_file_has_the_settings_as_a_training_reads_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text("""
task: {name: cartpole-swingup}
cluster: {backend: ssh, hosts: [{name: a, actors: 1}, {name: "null", actors: 2}]}
""")
    settings = ["run.key_file=keys #1: a", "run.name=1e3", "task.mjcf=models/own.xml",
                "task.pixels.camera=null", "agent.distribution.v_max=null",
                "agent.networks.policy_hidden_sizes=[8, 16]", "learner.limits={max_steps: 5}",
                "learner.limits.max_seconds=3", "cluster.hosts.0.actors=8",
                "evaluation.enabled=false", "cluster.slurm.options=['--comment=a, b']",
                "actors.count=1"]
    file = tmp_path / "other/best.yaml"
    file.parent.mkdir()
    _benchmark._write(file, _benchmark.Trial(4, 2, 10.0), tmp_path / "base.yaml", settings,
                      {"task.pixels.camera": '"null"', "agent.distribution.v_max": "null"}, "here")
    _, _, *lines = file.read_text(encoding="utf-8").splitlines()
    assert lines == [
        f'base: "{tmp_path}/base.yaml"',
        "actors:",
        "  count: 2",
        "agent:",
        "  distribution:",
        "    v_max: null",
        "  networks:",
        "    policy_hidden_sizes: [8, 16]",
        "cluster:",
        '  hosts: [{"name": "a", "actors": 8}, {"name": "null", "actors": 2}]',
        "  slurm:",
        '    options: ["--comment=a, b"]',
        "evaluation:",
        "  enabled: false",
        "learner:",
        "  limits:",
        "    max_seconds: 3",
        "    max_steps: 5",
        "  replication:",
        "    threads: 4",
        "run:",
        '  key_file: "keys #1: a"',
        "  name: 1e3",
        "task:",
        f'  mjcf: "{tmp_path}/models/own.xml"',
        "  pixels:",
        '    camera: "null"']
    read = _config.read(file, [])
    assert read["run"] == {"key_file": "keys #1: a", "name": "1e3"}
    assert read["task"]["name"] == "cartpole-swingup"
    assert read["task"]["pixels"] == {"camera": "null"}
    assert read["agent"]["distribution"] == {"v_max": None}


def test_the_environments_are_those_of_the_configuration(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(_benchmark, "_steps_per_s",
                        lambda task, count, seconds, **options: calls.append(options) or 1.0)
    resolved = {"task.name": "cartpole-swingup", "task.action_repeat": "4",
                "task.mjcf": "model/model.xml", "task.suite_folder": '"/installed"',
                "task.pixels.enabled": "true", "task.pixels.height": "8", "task.pixels.width": "6",
                "task.pixels.gl_platform": "egl", "task.pixels.egl_device": "3"}
    device = {"action_repeat": 4, "gl_platform": "egl", "egl_device": 3}
    file = tmp_path / "own.yaml"
    for text, models in (
            ("{mjcf: own.xml, suite_folder: suite}",
             {"mjcf": str(tmp_path / "own.xml"), "suite_folder": str(tmp_path / "suite")}),
            ("{mjcf: ''}", {})):
        file.write_text(f"task: {text}")
        _benchmark._print_environments(resolved, _config.read(file, [])["task"], 0.0)
        drawn = [{**device, **models, "pixels": (8, 6), "renderer": renderer}
                 for renderer in ("raycast", "gl")]
        # with one thread and with sixteen
        assert calls == [options for options in ({**device, **models}, *drawn) for _ in range(2)]
        calls.clear()


@pytest.mark.parametrize("arguments, message", [
    (["cartpol-swingup"], "benchmark: 'cartpol-swingup' is not a recipe"),
    (["smoke", "--seconds", "0"], "--seconds: got 0, want a number above 0"),
    (["smoke", "--seconds", "nan"], "--seconds: got nan, want a number above 0"),
    (["smoke", "--to", "there.yaml"], "benchmark: there.yaml: exists already"),
    (["smoke", "--set", "learner.no_such_key=1"], "no_such_key"),
])
def test_what_cannot_be_measured_is_an_error(arguments, message, tmp_path):
    (tmp_path / "there.yaml").write_text("")
    ended = run("benchmark", *arguments, cwd=tmp_path)
    assert ended.returncode != 0
    assert message in ended.stderr
    assert not (tmp_path / "benchmark.yaml").exists()
