"""replicant train NAME              a training by a recipe, from start to film: --list has the names
replicant benchmark [NAME]        how fast this machine trains a recipe, and the keys to set for it
replicant check-env MODULE:NAME   tries your environment
replicant data import|export      reads and writes data sets
replicant fleet --resume RUN      goes on with a run; fleet --config FILE starts one
replicant evaluator --checkpoint RUN --video
replicant --version

actor, check-data, export, learner, lockstep, plan and replay are the other programs of a run;
--help after a name prints its options. The environment variable REPLICANT_MAKE_ENV, FILE.py:NAME
or MODULE:NAME, names a function that makes the environments: `train` then trains in them, and all
else has them as the task `python-environment`.
"""

import difflib
import functools
import os
import signal
import sys


# the programs of a run, which the compiled module knows
PROGRAMS = ("fleet", "learner", "actor", "evaluator", "replay", "lockstep", "export", "plan",
            "check-data")
COMMANDS = ("train", "benchmark", "check-env", "data", "report", *PROGRAMS)


def main() -> int:
    """Runs the command. Ctrl-C ends it in one line, the end of a reader such as `head` silently."""
    try:
        code = _main()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("replicant: stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # what is still buffered must not fail again at the interpreter's end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _main() -> int:
    command, arguments = (sys.argv[1] if len(sys.argv) > 1 else "--help"), sys.argv[2:]
    if command in ("--help", "-h"):
        print(__doc__.strip())
        return 0 if len(sys.argv) > 1 else 1
    if command == "--version":
        from replicant import __version__

        print(f"replicant {__version__}")
        return 0
    if command not in COMMANDS:
        close = difflib.get_close_matches(command, COMMANDS, 1)
        meant = f"; did you mean {close[0]}?" if close else ""
        print(f"replicant: no command {command!r}{meant}; commands: {', '.join(COMMANDS)}",
              file=sys.stderr)
        return 1
    if command == "benchmark":
        from replicant import _benchmark

        return _benchmark.main(arguments)
    if command == "check-env":
        from replicant import _check_env

        return _check_env.main(arguments)
    if command == "report":
        from replicant import _report

        return _report.main(arguments)
    if command == "data":
        from replicant.data import _command

        return _command.main(arguments)
    if command == "train":
        from replicant import _train_command

        return _train_command.main(arguments, _run)
    return _run([command, *arguments])


def _run(words: list[str]) -> int:
    """Runs a program of the package: its name and arguments. Returns its exit code."""
    from replicant import _make_env, _process, _recipes
    from replicant.errors import EXIT_CONFIG, InvalidArgument

    name = os.environ.get(_make_env.VARIABLE)
    if name:
        from replicant import _group_guard

        # a fork, before there are threads
        _group_guard.start()
    from replicant._libraries import load_program, suite_folder

    try:
        program = load_program()
    except ImportError as error:
        print(f"{words[0]}: {error}", file=sys.stderr)
        return 1
    _process.use_ffmpeg_of_package()
    os.environ.setdefault("REPLICANT_SUITE_MODELS", suite_folder())
    os.environ.setdefault("REPLICANT_RECIPES", str(_recipes.FOLDER))
    make_adapter = None
    if name:
        from replicant._adapter import adapt

        try:
            name = os.environ[_make_env.VARIABLE] = _make_env.absolute(name)
            make_adapter = functools.partial(adapt, _make_env.find(name))
        except InvalidArgument as error:
            text = str(error).removeprefix("make_env: ")
            print(f"{words[0]}: {_make_env.VARIABLE}: {text}", file=sys.stderr)
            return EXIT_CONFIG

    # the roles of a fleet import what this process can
    os.environ |= _process.environment()
    return program.run(["replicant", *words], _process.python("replicant"),
                        _make_env.TASK, make_adapter)


if __name__ == "__main__":
    sys.exit(main())
