"""replicant train [NAME] [FLEET_ARGUMENT...]: a training from start to film.

NAME is a recipe's name, a task's name or the path of a YAML file; default: cartpole-swingup from
pixels. --list prints the names. The other arguments are those of `replicant fleet`, such as
--set learner.limits.max_seconds=300; --resume RUN, --status RUN, --stop RUN and its other commands
for a run stand in the place of NAME. Ctrl-C ends the run in good order: it is evaluated and filmed.
"""

import datetime
import importlib.util
import os
import pathlib
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable

from replicant import _config, _make_env, _recipes
from replicant.errors import Error

_DEFAULT = "cartpole-swingup"
# options of `replicant fleet` that say which run it is about, so that no recipe does
_OF_A_RUN = {"--config", "--resume", "--status", "--stop", "--logs", "--scale", "--report", "--join",
             "--sweep"}


def _print_wrapped(text: str, first: str, rest: str):
    print(textwrap.fill(text, width=100, initial_indent=first, subsequent_indent=rest,
                        break_on_hyphens=False))


def _list():
    print("recipes:")
    for name in _recipes.names():
        _print_wrapped(_recipes.about(name), f"  {name:32}  ", " " * 36)
    print("\ntasks, trained from pixels, those without a recipe by the recipe pixels:")
    _print_wrapped(" ".join(_recipes.tasks()), "  ", "  ")


def _draw_curve(evaluations, title: str, file: pathlib.Path):
    """The learning curve where gnuplot is missing."""
    from matplotlib.figure import Figure

    minutes, mean, deviation = (evaluations[name] for name in ("seconds", "return", "return_std"))
    axes = Figure(figsize=(9.6, 5.4)).subplots()
    minutes = minutes / 60
    axes.fill_between(minutes, mean - deviation, mean + deviation, color="#c6dbef",
                      label="standard deviation of the episodes")
    axes.plot(minutes, mean, "o-", color="#08519c", label="mean of the episodes")
    axes.set(title=title, xlabel="minutes", ylabel="return of the policy without noise")
    axes.grid()
    axes.legend(loc="lower right")
    axes.figure.savefig(file)


def _print_how_to_go_on(folder: pathlib.Path):
    """Continues the fleet's summary by what a user of the package may do next."""
    from replicant._train import Run

    run = Run.open(folder)
    rows = []
    curve = folder / "curve.png"
    evaluations = run.evaluations()
    has_returns = len(evaluations.get("return", ())) > 0
    if has_returns and not curve.exists() and importlib.util.find_spec("matplotlib"):
        _draw_curve(evaluations, folder.name, curve)
        rows.append(("learning curve", str(curve)))
    if has_returns:
        which = ", which='best'" if any((folder / "best").glob("step-*")) else ""
        make_env = os.environ.get(_make_env.VARIABLE)
        own = f", make_env={make_env!r}" if make_env else ""
        rows.append(("in Python", f"policy = replicant.Policy.load({str(folder)!r}{which}{own})"))
    rows.append(("all curves", f"tensorboard --logdir {shlex.quote(str(folder))}"))
    for label, value in rows:
        print(f"{label:18}  {value}")


def _section_run(config: pathlib.Path, arguments: list[str]) -> dict:
    """The section `run` of the configuration, changed by --set among the arguments."""
    try:
        run = _config.read(config, _config.settings_of(arguments)).get("run")
    except (Error, ImportError):  # the fleet says what is wrong
        run = None
    return run if isinstance(run, dict) else {}


def main(arguments: list[str], run_program: Callable[[list[str]], int]) -> int:
    """Runs the command. `run_program` runs a program of the package: its name and arguments."""
    if arguments[:1] == ["--list"]:
        _list()
        return 0
    if arguments[:1] in (["--help"], ["-h"]):
        print(__doc__.strip())
        return 0
    if any(word.partition("=")[0] in _OF_A_RUN for word in arguments) and (
            arguments[0].startswith("-")):
        return run_program(["fleet", *arguments])
    from replicant._train import settings_of_own, yaml_of

    name = _DEFAULT
    if arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
    try:
        config, settings = _recipes.find(name)
    except Error as error:
        print(f"train: {error}", file=sys.stderr)
        return 1

    run = _section_run(config, arguments)
    folder = run.get("dir")
    if not folder:
        now = datetime.datetime.now(datetime.timezone.utc)
        # of a recipe its name, also with the folder
        own = name.replace("/", "_") if name in _recipes.names() else run.get("name") or config.stem
        folder = f"runs/{settings.get('run.name', own)}-{now:%Y%m%d-%H%M%S}"
        settings["run.dir"] = folder
    if os.environ.get(_make_env.VARIABLE):
        settings |= settings_of_own(config)
    words = ["fleet", "--config", str(config)]
    for key, value in settings.items():
        words += ["--set", f"{key}={value if isinstance(value, str) else yaml_of(value, key)}"]
    words += arguments
    for what, program, package in (("film", "ffmpeg", "imageio_ffmpeg"),
                                   ("learning curve", "gnuplot", "matplotlib")):
        if not shutil.which(program) and importlib.util.find_spec(package) is None:
            print(f"train: no {what}: the program {program} is missing; hint: install it, or "
                  "pip install 'WHEEL[train]'", file=sys.stderr)
    print(f"train: replicant {shlex.join(words)}", flush=True)
    code = run_program(words)
    if code != 0:
        return code
    path = pathlib.Path(folder).resolve()
    if (path / "checkpoints").is_dir():
        _print_how_to_go_on(path)
    return 0
