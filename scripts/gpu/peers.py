"""PyTorch's training steps on a GPU, which scripts/gpu/check compares with ours. They compile at
the same time as other stages run; each then waits until it is told to go."""

import json
import os
import pathlib
import select
import signal
import subprocess
import time

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "bench/run/learner_peer.py"
READY_S = 150
LIMIT_S = 60


def has_torch(python):
    return subprocess.run([python, "-c", "import torch; assert torch.cuda.is_available()"],
                          capture_output=True, check=False).returncode == 0


class Peer:
    """PyTorch's step of a case, which warms up and then waits to be timed."""

    def __init__(self, python, case, mode, logs):
        self.log = logs / f"torch_{case.replace('/', '_')}_{mode}.log"
        self.problem, self.started = "", time.monotonic()
        with self.log.open("w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                [python, PROGRAM, f"{case}/threads-1", mode, "1", "cuda"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                start_new_session=True,
                env=dict(os.environ, TORCHINDUCTOR_COMPILE_THREADS="2"))

    def read_line(self, limit_s):
        """Its next line; empty if there is none in time."""
        ready, _, _ = select.select([self.process.stdout], [], [], max(limit_s, 0))
        return self.process.stdout.readline().strip() if ready else ""

    def await_ready(self, limit_s):
        """Ends it if it has not warmed up by then."""
        if self.read_line(limit_s) == "ready":
            return
        self.problem = f"not ready after {time.monotonic() - self.started:.0f} s; {self.log}"
        self.end()

    def figure(self):
        """Milliseconds of a step; a text if there is none."""
        if self.problem:
            return self.problem
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return f"it has ended; {self.log}"
        line = self.read_line(LIMIT_S)
        return json.loads(line)["value"] if line else f"no figure; {self.log}"

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


# each of them one CUDA graph
MODES = ("eager", "compile")


def start(python, cases, logs):
    """Peers by case and mode; none if that Python has no PyTorch with CUDA."""
    if not has_torch(python):
        return {}
    return {case: {mode: Peer(python, case, mode, logs) for mode in MODES}
            for case in cases}


def await_ready(peers, limit_s):
    """Waits until each is ready or has ended."""
    until = time.monotonic() + min(READY_S, limit_s)
    for peer in all_of(peers):
        peer.await_ready(until - time.monotonic())


def end(peers):
    for peer in all_of(peers):
        peer.end()


def all_of(peers):
    return [peer for modes in peers.values() for peer in modes.values()]
