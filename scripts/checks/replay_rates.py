"""Runs a replay service at full rate with a binding rate limiter, and compares its
first minute with its last.

    build/venv/bin/python scripts/checks/replay_rates.py [--preset dev] [--minutes 20]

Two writers and a reader, each a process, work without a pause; the clock starts
once the table is full. Prints rates and memory of both minutes, their difference,
and the minimum and maximum over all minutes. Exits with 1 if one differs by more
than 5 %, or if the faster side was not held back by the limiter.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/replay_alone"))
import replay_client  # noqa: E402

SETTINGS = """
replay:
  bind: tcp://127.0.0.1:*
  observation_bytes: 16
  action_bytes: 8
  insert_chunk: 256
  samples_in_flight: 512
  tables:
    default:
      max_size: 100000
      n_step: 3
      rate_limiter:
        mode: ratio
        samples_per_insert: 4
        min_size_to_sample: 1000
        error_buffer: 4096
"""
TOLERANCE = 0.05


def memory_mb(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def await_endpoint(log, service):
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up and service.poll() is None:
        found = re.search(r"listening at (\S+)\n", log.read_text())
        if found:
            return found[1]
        time.sleep(0.05)
    raise SystemExit(f"the service does not listen: {log.read_text()}")


class Watch:
    """Looks at a service."""

    def __init__(self, endpoint, pid):
        self.client = replay_client.Client(endpoint, timeout_s=30)
        self.pid = pid
        self.is_binding = False

    def table(self):
        table = self.client.status()["tables"][0]
        self.is_binding |= bool(table["insert_wait"] or table["sample_wait"])
        return table

    def minute(self, seconds):
        """Rates, and the memory at the end."""
        first, start = self.table(), time.monotonic()
        while time.monotonic() < start + seconds:
            time.sleep(1)
            last = self.table()
        spent = time.monotonic() - start
        rates = {f"{name} per s": (last[name] - first[name]) / spent
                 for name in ("inserts", "samples", "updates")}
        return rates | {"memory, MB": memory_mb(self.pid)}


def run(build, folder, minutes):
    (folder / "run.yaml").write_text(SETTINGS)
    log = folder / "service.log"
    processes = []

    def start(command, **files):
        processes.append(subprocess.Popen(list(map(str, command)), **files))
        return processes[-1]

    try:
        service = start([build / "bin" / "replay", "--config", folder / "run.yaml"],
                        stderr=log.open("w"))
        endpoint = await_endpoint(log, service)
        for number, role in enumerate(("write", "write", "read")):
            start([build / "bin" / "replay_load", role, endpoint,
                   folder / f"{number}.report", 0])
        watch = Watch(endpoint, service.pid)
        while watch.table()["size"] < 100000:
            time.sleep(0.2)
        begin = time.monotonic()
        rows = []
        while time.monotonic() < begin + 60 * (minutes - 0.5):
            rows.append(watch.minute(60))
        assert all(process.poll() is None for process in processes), "one ended"
        return rows, watch.is_binding
    finally:
        # a writer whose service is gone would wait for another
        for process in processes:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--preset", default="dev", help="a built one")
    parser.add_argument("--minutes", type=float, default=20, help="at least 2")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows, is_binding = run(ROOT / "build" / options.preset,
                               pathlib.Path(folder), options.minutes)
    print(f"{'':16}{'first minute':>14}{'last minute':>14}{'difference':>12}"
          f"{'least':>10}{'most':>10}")
    is_good = is_binding
    for name, first in rows[0].items():
        last = rows[-1][name]
        minutes = [row[name] for row in rows]
        change = last / first - 1
        is_good &= abs(change) <= TOLERANCE
        print(f"{name:16}{first:14.0f}{last:14.0f}{100 * change:+11.1f}%"
              f"{min(minutes):10.0f}{max(minutes):10.0f}")
    print(f"the rate limiter {'was' if is_binding else 'WAS NOT'} binding")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
