"""`replicant train`: recipes and tasks by name, and a training from start to film."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import replicant
from replicant import _process, _recipes, _train_command, envs, errors
from replicant.__main__ import PROGRAMS

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"
# they need MPI, or a data set, or are no recipe
LEFT_OUT = {"cartpole_swingup_pixels_mpi.yaml", "resnet50_imagenet.yaml", "sngan_imagenet.yaml",
            "reference.yaml"}


def command(*arguments, cwd, check=True):
    """`replicant train` with these arguments."""
    return subprocess.run([*_process.python("replicant"), "train", *map(str, arguments)], cwd=cwd,
                          env=_process.environment(), check=check, timeout=280, text=True,
                          capture_output=True)


def texts(folder):
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8")
            for path in folder.rglob("*.yaml")}


# --- names ---


def test_a_list_that_nobody_reads_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run([*map(str, _process.python("replicant")), "train", "--list"],
                           env=_process.environment(), timeout=60, stdout=writer,
                           stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    # as if SIGPIPE had ended it
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")


def test_the_package_has_the_recipes_of_the_repository():
    wanted = {name: text for name, text in texts(CONFIGS).items() if name not in LEFT_OUT}
    assert texts(_recipes.FOLDER) == wanted


def test_a_name_is_a_recipe_a_task_or_a_file(tmp_path, monkeypatch):
    folder = _recipes.FOLDER
    assert _recipes.find("cartpole_swingup_state") == (folder / "cartpole_swingup_state.yaml", {})
    assert _recipes.find("distracting/easy") == (folder / "distracting/easy.yaml", {})
    with pytest.raises(errors.ConfigError, match="config: got {'task.name': 1}; want the path of a "
                       "YAML file, or the name of a recipe or a task; hint: keys"):
        replicant.train({"task.name": 1}, folder=tmp_path)
    # a task with its own recipe, and one without
    assert _recipes.find("walker-walk") == (folder / "walker_walk_pixels.yaml", {})
    assert _recipes.find("finger-spin") == (
        folder / "pixels.yaml", {"run.name": "finger_spin_pixels", "task.name": "finger-spin"})
    own = tmp_path / "own.yaml"
    own.write_text("{}")
    assert _recipes.find(str(own)) == (own, {}) == _recipes.find(own)
    monkeypatch.chdir(tmp_path)
    assert _recipes.find("own.yaml") == (pathlib.Path("own.yaml"), {})


def test_every_task_of_the_suite_has_a_recipe():
    assert _recipes.tasks() == envs.tasks()
    files = {_recipes.find(task)[0].name for task in envs.tasks()}
    assert {"pixels.yaml", "cartpole_swingup_pixels.yaml", "cheetah_run_pixels.yaml"} <= files


@pytest.mark.parametrize("name, message", [
    ("cartpol-swingup", "'cartpol-swingup' is not a recipe, a task or a YAML file; did you mean "
     "cartpole-swingup"),
    ("qqqq", "'qqqq' is not a recipe, a task or a YAML file; hint: replicant train --list prints "
     "the names"),
    ("configs/walker_walk_state.yaml", "configs/walker_walk_state.yaml: no such file; hint: the "
     "package has this recipe by the name walker_walk_state"),
    ("configs/distracting/easy.yaml", "configs/distracting/easy.yaml: no such file; hint: the "
     "package has this recipe by the name distracting/easy"),
    ("my.yaml", "my.yaml: no such file; hint: replicant train --list prints the names of recipes"),
])
def test_any_other_name_is_an_error_that_helps(name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.Error, match="^" + re.escape(message)):
        replicant.train(name, folder=tmp_path / "run")
    found = command(name, cwd=tmp_path, check=False)
    assert found.returncode == 1 and found.stderr.startswith(f"train: {message}")
    assert not (tmp_path / "runs").exists()


def test_the_list_has_every_name_and_what_a_recipe_trains(tmp_path):
    text = command("--list", cwd=tmp_path).stdout
    assert re.search(r"^  cartpole_swingup_state +Cartpole swing-up from the state vector$", text,
                     re.MULTILINE)
    assert set(envs.tasks()) | set(_recipes.names()) <= set(text.split())
    assert max(map(len, text.splitlines())) <= 100


# --- a training ---


def test_one_command_trains_evaluates_films_and_says_how_to_go_on(tmp_path):
    text = command("smoke", "--set", "learner.limits.max_steps=40", cwd=tmp_path).stdout
    folder, = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"smoke-\d{8}-\d{6}", folder.name)
    rows = dict(re.findall(r"^(\w[\w ]*?) {2,}(.*)$", text, re.MULTILINE))
    for label in ("video", "learning curve", "checkpoint"):
        assert pathlib.Path(rows[label]).exists(), rows
    assert pathlib.Path(rows["video"]).stat().st_size > 1000
    policy = eval(rows["in Python"].removeprefix("policy = "), {"replicant": replicant})
    assert str(policy.checkpoint).startswith(str(folder / "best"))
    assert policy.evaluate(1).shape == (1,)
    assert rows["all curves"] == f"tensorboard --logdir {folder}"


def test_arguments_of_the_fleet_pass_through(tmp_path):
    command("finger-spin", "--set=run.dir=here", "--render", "slurm", "--to", "files",
            cwd=tmp_path)
    text = (tmp_path / "files/config.yaml").read_text(encoding="utf-8")
    assert re.search(r"name: finger-spin$", text, re.MULTILINE)
    assert re.search(r"name: finger_spin_pixels$", text, re.MULTILINE)
    assert "dir: here" in text
    failed = command("smoke", "--set", "learner.no_such_key=1", cwd=tmp_path, check=False)
    assert failed.returncode != 0 and "no_such_key" in failed.stderr
    assert "in Python" not in failed.stdout


@pytest.mark.parametrize("lines, words, wanted", [
    ("run: {name: q, dir: my_dir}", [], None),
    ("base: base.yaml\nrun: {name: q}", [], None),  # base.yaml has a run.dir
    ("base: base.yaml\nrun: {dir: ''}", [], "runs/of_base-"),
    ("run: {name: q}", [], "runs/q-"),
    ("run: {name: q}", ["--set", "run.dir=here"], None),
    ("run: {name: q}", ["--set=run={dir: here}"], None),
    ("run: {seed: 2}", [], "runs/own-"),
    # the fleet says what is wrong
    ("run: [", [], "runs/own-"),
    ("run: {dir: [a]}", [], None),
])
def test_a_file_of_ones_own_says_where_and_by_which_name_it_runs(lines, words, wanted, tmp_path,
                                                                 monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text("run: {name: of_base, dir: of_base}")
    (tmp_path / "own.yaml").write_text(lines)
    given = []
    assert _train_command.main(["own.yaml", *words], lambda found: given.extend(found) or 3) == 3
    command = ["fleet", "--config", "own.yaml"]
    if wanted:
        command += ["--set", given[4]]
        assert re.fullmatch(rf"run\.dir={wanted}\d{{8}}-\d{{6}}", given[4])
    assert given == [*command, *words]


def test_the_variable_of_make_env_names_the_environment_that_is_trained(tmp_path, monkeypatch):
    example = CONFIGS.parent / "examples/python/own_environment.py"
    monkeypatch.chdir(example.parent)
    monkeypatch.setenv("REPLICANT_MAKE_ENV", f"{example.name}:Pole")
    words = []
    _train_command.main(["finger-spin", "--set", f"run.dir={tmp_path}"],
                        lambda given: words.extend(given) or 3)
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    assert settings["task.name"] == "python-environment"
    # neither films nor the limits of another task
    assert settings["evaluation.video.enabled"] == "false"
    assert settings["learner.limits.max_frames"] == "0"
    monkeypatch.setenv("REPLICANT_MAKE_ENV", "nothing.py:Pole")
    refused = subprocess.run([*_process.python("replicant"), "fleet", "--config", "none.yaml"],
                             env=_process.environment(), text=True, capture_output=True,
                             timeout=60, check=False)
    assert (refused.returncode, refused.stderr) == (
        78, f"fleet: REPLICANT_MAKE_ENV: {example.parent}/nothing.py: no such file\n")


def test_the_program_names_its_version_and_its_commands():
    def run(*words):
        return subprocess.run([*_process.python("replicant"), *words], env=_process.environment(),
                              text=True, capture_output=True, timeout=60, check=False)

    assert run("--version").stdout == f"replicant {replicant.__version__}\n"
    wrong = run("lernar")
    assert wrong.returncode == 1
    assert wrong.stderr == (
        "replicant: no command 'lernar'; did you mean learner?; commands: train, benchmark, "
        "check-env, data, report, fleet, learner, actor, evaluator, replay, lockstep, export, plan, "
        "check-data\n")
    # what the compiled module has
    found = subprocess.run(
        [sys.executable, "-c", "from replicant.__main__ import _run; _run(['none'])"], text=True,
        env=_process.environment(), capture_output=True, timeout=60, check=False)
    assert found.stderr.endswith(f"the first argument is the program: {', '.join(PROGRAMS)}\n")


@pytest.mark.parametrize("words", [["--status", "RUN"], ["--set", "a=1", "--resume=RUN"]])
def test_commands_for_a_run_have_no_recipe(words):
    given = []
    assert _train_command.main(words, lambda found: given.extend(found) or 5) == 5
    assert given == ["fleet", *words]


# --- programs that are missing ---


def test_ffmpeg_of_a_package_takes_the_place_of_a_missing_one(tmp_path, monkeypatch):
    program = tmp_path / "ffmpeg-of-package"
    program.write_text("#!/bin/sh\necho here\n")
    program.chmod(0o755)
    (tmp_path / "imageio_ffmpeg.py").write_text(
        f"def get_ffmpeg_exe():\n    return {str(program)!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "imageio_ffmpeg", raising=False)
    before = os.environ["PATH"]
    # there is one already
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/ffmpeg")
    _process.use_ffmpeg_of_package()
    assert os.environ["PATH"] == before
    monkeypatch.undo()

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    _process.use_ffmpeg_of_package()
    assert subprocess.run(["ffmpeg"], capture_output=True, check=True).stdout == b"here\n"
    sys.modules.pop("imageio_ffmpeg", None)


def test_a_curve_is_drawn_without_gnuplot(tmp_path):
    file = tmp_path / "curve.png"
    _train_command._draw_curve({"seconds": np.array([10.0, 60.0]), "return": np.array([1.0, 5.0]),
                                "return_std": np.array([0.5, 0.0])}, "smoke", file)
    assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_missing_programs_are_named_before_the_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(_train_command.importlib.util, "find_spec", lambda name: None)
    words = []
    code = _train_command.main(["smoke", "--set", f"run.dir={tmp_path}"],
                               lambda given: words.extend(given) or 3)
    assert code == 3
    assert words == ["fleet", "--config", str(_recipes.FOLDER / "smoke.yaml"), "--set",
                     f"run.dir={tmp_path}"]
    told = capsys.readouterr().err
    assert "no film: the program ffmpeg is missing" in told
    assert "no learning curve: the program gnuplot is missing" in told
