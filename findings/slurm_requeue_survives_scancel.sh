#!/usr/bin/env bash
# Slurm 22.05.8: a job that requeues itself on SIGTERM survives `scancel`.
#
# Behaviour: many guides for preemptible jobs give a batch script a trap that
# writes a checkpoint on SIGTERM and calls `scontrol requeue`. A plain `scancel`
# sends the same SIGTERM to the script, and the controller accepts the requeue of
# a job that it is cancelling: the job goes to PENDING with Restarts=1 and runs
# again. The user's scancel is undone, each time, without a message; only a
# second scancel while the job pends ends it. In the trap the two cases can be
# told apart: at a scancel JobState is COMPLETING already, at the warning of
# --signal=B: it is RUNNING, and at a preemption PreemptTime is set.
#
# Output seen (Debian 12, slurm-wlm 22.05.8):
#   slurm 22.05.8
#   in the trap after scancel: JobState=COMPLETING PreemptTime=None; scontrol requeue: exit code 0
#   within 20 s of scancel: job 1 runs again, Restarts=1
#   in the trap after scancel --signal=TERM --batch: JobState=RUNNING
# The exit code is 1 if Slurm does anything else.
# Needs root and slurm-wlm, munge: apt-get install slurm-wlm munge
set -euo pipefail
checks=$(cd "$(dirname "${BASH_SOURCE[0]}")/../scripts/checks" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$checks python3 - "$folder" <<'PYTHON'
import pathlib
import re
import sys
import time

import private_slurm

folder = pathlib.Path(sys.argv[1])
cluster = private_slurm.Cluster(
    folder, 1, ["PartitionName=all Nodes=n1 Default=YES MaxTime=INFINITE State=UP"])
job, log = folder / "job.sh", folder / "job.log"
job.write_text("""#!/bin/bash
#SBATCH --requeue
#SBATCH --open-mode=append
state() { scontrol --oneliner show job "$SLURM_JOB_ID" | grep -oE "(JobState|PreemptTime)=[^ ]+"; }
trap 'echo TRAP $(state); if [ -z "$KEEP" ]; then scontrol requeue "$SLURM_JOB_ID"
  echo "REQUEUE exit code $?"; sleep 60; fi; exit 1' TERM
echo "START restarts ${SLURM_RESTART_COUNT:-0}"
for i in $(seq 600); do sleep 0.1; done
""")


def submit(keep):
    log.unlink(missing_ok=True)
    number = cluster.run("sbatch", "--parsable", f"--export=ALL,KEEP={keep}", "-o", log,
                         job).strip()
    while not log.exists() or "START" not in log.read_text():
        time.sleep(0.1)
    time.sleep(1)
    return number


try:
    print(cluster.run("sinfo", "--version").replace("-wlm", "").strip())
    number = submit("")
    cluster.run("scancel", number)
    deadline = time.monotonic() + 20
    while "restarts 1" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.2)
    text = log.read_text()
    state = re.search(r"TRAP (.*)", text)[1]
    code = re.search(r"REQUEUE (.*)", text)[1]
    print(f"in the trap after scancel: {state}; scontrol requeue: {code}")
    runs_again = "restarts 1" in text
    print(f"within 20 s of scancel: job {number} "
          + ("runs again, Restarts=1" if runs_again else "does not run again"))
    cluster.run("scancel", "--signal=KILL", "--full", number, check=False)
    cluster.run("scancel", number)
    while cluster.run("squeue", "-h").strip():
        time.sleep(0.2)
    cluster.run("scancel", "--signal=TERM", "--batch", submit("1"))
    time.sleep(2)
    warned = re.search(r"TRAP (JobState=\S+)", log.read_text())[1]
    print(f"in the trap after scancel --signal=TERM --batch: {warned}")
finally:
    cluster.close()
is_seen = (state == "JobState=COMPLETING PreemptTime=None" and code == "exit code 0" and runs_again
           and warned == "JobState=RUNNING")
sys.exit(0 if is_seen else 1)
PYTHON
