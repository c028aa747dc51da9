"""replicant data: import and export of data sets."""

import argparse
import signal
import sys
import time

from replicant.errors import Error


class _Progress:
    """A line on standard error, once a second."""

    def __init__(self):
        self._begin = self._shown = time.monotonic()
        self._first = None

    def __call__(self, job) -> None:
        if self._first is None:
            self._first = job.num_steps
        now = time.monotonic()
        is_last = job.done == job.total
        if now - self._shown < 1.0 and not is_last:
            return
        self._shown = now
        rate = (job.num_steps - self._first) / max(now - self._begin, 1e-9)
        filled = 30 * job.done // job.total
        bar = "#" * filled + "." * (30 - filled)
        end = "\n" if is_last or not sys.stderr.isatty() else "\r"
        print(f"[{bar}] {job.done}/{job.total} episodes, {job.num_steps} steps, {rate:.0f} steps/s",
              end=end, file=sys.stderr, flush=True)


def _import(arguments) -> None:
    from replicant.data import import_data

    job = import_data(arguments.mapping, arguments.to, _Progress())
    left_out = f"; {job.num_left_out} left out: no whole step" if job.num_left_out else ""
    cut = (f"; the last step of {job.num_cut} left out: no observation after it"
           if job.num_cut else "")
    print(f"{arguments.to}: {job.total} episodes, {job.num_steps} steps{cut}{left_out}")


def _export(arguments) -> None:
    from replicant.data import export

    count = export(arguments.source, arguments.to, arguments.format, episodes=arguments.episodes,
                   which=arguments.which, pictures=arguments.pictures,
                   make_env=arguments.make_env, fps=arguments.fps)
    print(f"{arguments.to}: {count} episodes")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser("replicant data", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("import", help="a data set for replay.prior of a run")
    command.add_argument("mapping", help="file that says what is what; help(replicant.data.Mapping)")
    command.add_argument("--to", required=True, help="new folder")
    command.set_defaults(run=_import)
    command = commands.add_parser("export", help="a recording, or a run's episodes, for others")
    command.add_argument("source", help="folder of a recording, or of a run")
    command.add_argument("--to", required=True, help="new folder")
    command.add_argument("--format", required=True, help="minari or lerobot")
    command.add_argument("--episodes", type=int,
                         help="that the policy of a run plays; default: those in its replay")
    command.add_argument("--which", default="newest",
                         help="policy that plays --episodes: newest or best; default newest")
    command.add_argument("--pictures", default="png",
                         help="of lerobot: png, without loss, or video, AV1; default png")
    command.add_argument("--make-env",
                         help="FILE.py:NAME or MODULE:NAME, of a run that was trained with make_env")
    command.add_argument("--fps", type=float,
                         help="of lerobot: steps of a second, where the source does not say it")
    command.set_defaults(run=_export)
    arguments = parser.parse_args(argv)
    try:
        arguments.run(arguments)
    except Error as error:
        print(f"replicant data: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        hint = "; hint: the same command goes on" if arguments.run is _import else ""
        print(f"replicant data: stopped{hint}", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0
