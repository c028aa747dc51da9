"""The programs of a run: replicant fleet --config FILE, replicant evaluator ...
replicant check-env MODULE:FUNCTION tries a user's environment.
replicant data import|export reads and writes data sets.

The environment variable REPLICANT_MAKE_ENV, FILE.py:NAME or MODULE:NAME, names a function that
makes the environments of the task `python-environment`.
"""

import functools
import os
import sys


def main() -> int:
    if sys.argv[1:2] == ["check-env"]:
        from replicant import _check_env

        return _check_env.main(sys.argv[2:])
    if sys.argv[1:2] == ["data"]:
        from replicant.data import _command

        return _command.main(sys.argv[2:])
    # before OpenMP is loaded; its threads would spin for the processors of other roles
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")
    name = os.environ.get("REPLICANT_MAKE_ENV")
    if name:
        from replicant import _group_guard

        # a fork, before there are threads
        _group_guard.start()
    from replicant._libraries import load_onednn, mujoco_if_any, suite_folder

    load_onednn()
    with mujoco_if_any():
        from replicant import _program
    from replicant import _make_env, _process

    os.environ.setdefault("REPLICANT_SUITE_MODELS", suite_folder())
    make_adapter = None
    if name:
        from replicant._adapter import adapt

        make_adapter = functools.partial(adapt, _make_env.find(name))

    # the roles of a fleet import what this process can
    os.environ |= _process.environment()
    return _program.run(["replicant", *sys.argv[1:]], _process.python("replicant"),
                        _make_env.TASK, make_adapter)


if __name__ == "__main__":
    sys.exit(main())
