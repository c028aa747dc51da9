"""What an environment has started ends with its role, whatever ends the role."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

# As the fleet starts a role: it leads a group and dies with its parent.
FLEET = """
import ctypes, os, subprocess, sys

def lead():
    os.setpgid(0, 0)
    if sys.argv[2] == "dies":
        ctypes.CDLL(None).prctl(1, 9)

subprocess.Popen([sys.executable, "-c", sys.argv[1]], preexec_fn=lead).wait()
"""

ROLE = """
import os, subprocess, sys, time
from replicant import _group_guard

_group_guard.start()
simulator = subprocess.Popen(["sleep", "100"])
print(os.getpid(), simulator.pid, flush=True)
time.sleep(100)
"""


def is_alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def ends(pid, seconds=20):
    deadline = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_alive(pid)


def start(kind):
    fleet = subprocess.Popen([sys.executable, "-c", FLEET, ROLE, kind], stdout=subprocess.PIPE,
                             text=True)
    role, simulator = map(int, fleet.stdout.readline().split())
    return fleet, role, simulator


@pytest.mark.parametrize("killed", ["fleet", "role"])
def test_a_killed_fleet_or_role_leaves_no_process(killed):
    fleet, role, simulator = start("dies")
    os.kill(fleet.pid if killed == "fleet" else role, signal.SIGKILL)
    assert ends(role) and ends(simulator)
    fleet.wait()


def test_an_order_to_the_group_is_for_the_role():
    fleet, role, simulator = start("dies")
    # the guard must outlive this, or nobody would end what ignores the order
    os.killpg(role, signal.SIGTERM)
    assert ends(role) and ends(simulator)
    fleet.wait()


def test_a_role_that_no_fleet_has_started_has_no_guard():
    # its group may be a pipeline of a shell
    fleet, role, simulator = start("stays")
    os.kill(role, signal.SIGKILL)
    assert ends(role)
    time.sleep(0.3)
    assert is_alive(simulator)
    os.kill(simulator, signal.SIGKILL)
    fleet.wait()
