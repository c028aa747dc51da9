"""Ctrl-C ends every call that waits or computes for long; such a call in a daemon thread does
not disturb the end of the program."""

import signal
import subprocess
import sys
import time

import pytest

ENVS = """
from replicant import envs
env = envs.make_vec("walker-walk", num_envs=16, pixels=(84, 84))
env.reset()
actions = env.action_space.sample()
"""
REPLAY = """
from replicant import replay
signature = replay.Signature(((2,), "float32"), ((1,), "float32"))
service = replay.Replay.start(signature)
writer = replay.Writer("tcp://127.0.0.1:1", signature, group_steps=1)
writer.begin()
"""
RUN = """
import pathlib, subprocess, replicant
training = subprocess.Popen(["sleep", "600"])
run = replicant.Run(pathlib.Path(), training, pathlib.Path())
"""
# preparation, what is interrupted, end
CALLS = {
    "step": (ENVS, "while True: env.step(actions)", "env.close()"),
    "recv": (ENVS, "while True: env.send(actions, range(16)); env.recv(16)", "env.close()"),
    "sample": (REPLAY, "service.reader().sample()", "writer.close(); service.close()"),
    "append": (REPLAY, "[writer.append([0, 0], [0], 0.0) for _ in range(10**6)]",
               "writer.close(); service.close()"),
    "flush": (REPLAY, "writer.append([0, 0], [0], 0.0); writer.flush()",
              "writer.close(); service.close()"),
    "status": (REPLAY, "replay.status('tcp://127.0.0.1:1', timeout=600)",
               "writer.close(); service.close()"),
    "wait": (RUN, "run.wait()", "training.kill(); training.wait()"),
}


@pytest.mark.parametrize("call", sorted(CALLS))
def test_ctrl_c_ends_a_call(call):
    prepare, interrupted, end = CALLS[call]
    # a shell's background job ignores SIGINT, and so would its children
    program = f"""import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
{prepare}
print("ready", flush=True)
try:
    {interrupted}
except KeyboardInterrupt:
    print("interrupted", flush=True)
{end}
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    # until it waits; earlier, Ctrl-C comes between two instructions of Python
    time.sleep(0.3)
    sent = time.monotonic()
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n"
    print(f"{call}: {time.monotonic() - sent:.3f} s")
    assert child.wait(60) == 0


# whose functions leave the GIL to others
OWN_TASK = """
import time
import numpy as np
from replicant import envs
def reward(physics):
    time.sleep(0.01)
    return 1.0
model = "<mujoco><worldbody><body><joint/><geom size='.1'/></body></worldbody></mujoco>"
task = envs.Task("still", model, reward)
env = envs.make_vec(task, 4, num_threads=2)
env.reset()
actions = np.zeros((4, 0))
"""


@pytest.mark.parametrize("end, code", [("", 0), ("import sys; sys.exit(3)", 3)])
def test_a_program_may_end_before_the_steps_that_it_sent(end, code):
    program = f"{OWN_TASK}env.send(actions, range(4))\n{end}"
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", program], timeout=60, stderr=subprocess.PIPE,
                               text=True)
        assert (ended.returncode, ended.stderr) == (code, "")


# what a daemon thread repeats until the program ends
DAEMONS = {
    "step": (ENVS, "env.step(actions)"),
    "step of a task in Python": (OWN_TASK, "env.step(actions)"),
    "sample": (REPLAY + "reader = service.reader()\n", "reader.sample()"),
    "status": (REPLAY, "service.status()"),
}


@pytest.mark.parametrize("call", sorted(DAEMONS))
def test_a_daemon_thread_in_a_call_lets_the_program_end(call):
    prepare, repeated = DAEMONS[call]
    program = f"""import threading, time
{prepare}
def repeat():
    while True:
        {repeated}
threading.Thread(target=repeat, daemon=True).start()
time.sleep(0.3)
"""
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", program], timeout=60, stderr=subprocess.PIPE,
                               text=True)
        assert ended.returncode == 0, ended.stderr
        # of what the thread still holds
        assert "leaked" not in ended.stderr
        if call.startswith("step"):
            assert ended.stderr == ""


def test_environments_of_a_task_in_python_end_with_the_program():
    # what is registered first is called last
    program = f"""import atexit
def late():
    try:
        env.step(actions)
    except errors.Error as error:
        print(error)
atexit.register(late)
from replicant import errors
{OWN_TASK}"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True,
                           text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        0, "the program ends, and these environments have ended with it\n", "")


def test_a_program_may_wait_at_its_end_for_a_thread_that_steps():
    program = f"""import atexit
atexit.register(lambda: thread.join())
import threading
{OWN_TASK}
def repeat():
    while True:
        env.step(actions)
thread = threading.Thread(target=repeat, daemon=True)
thread.start()
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=60, stderr=subprocess.PIPE,
                           text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("process", ["thread", "child"])
def test_a_service_saves_its_steps_when_the_program_ends(tmp_path, process):
    start = f"""
from replicant import replay
signature = replay.Signature(((2,), "float32"), ((1,), "float32"))
service = replay.Replay.start(signature, checkpoint_folder={str(tmp_path / "replay")!r},
                              process={process!r})
"""
    write = """
import threading
writer, reader = service.writer(), service.reader()
threading.Thread(target=reader.sample, daemon=True).start()
writer.begin()
for t in range(8):
    writer.append([t, t], [t], 0.0)
writer.end([8, 8])
writer.flush()
"""
    ask = "print(service.status()['tables'][0]['size'])"
    command = [sys.executable, "-c"]
    assert subprocess.run([*command, start + write], timeout=60).returncode == 0
    again = subprocess.run([*command, start + ask], timeout=60, stdout=subprocess.PIPE)
    assert again.stdout == b"8\n"
