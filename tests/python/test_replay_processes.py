"""replicant.replay: checkpoints, keys, memory, forks and child processes."""

import gc
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest

from replicant import errors, replay
from replay_steps import STATE, write_episode


@pytest.mark.parametrize("process", ["thread", "child"])
def test_a_checkpoint_brings_the_steps_back(tmp_path, process):
    options = {"checkpoint_folder": str(tmp_path / "checkpoints"), "process": process}
    with replay.Replay.start(STATE, **options) as service:
        with service.writer() as writer, service.reader(batch_size=2) as reader:
            write_episode(writer, 5)
            reader.sample(timeout=60)
            assert reader.checkpoint(6, timeout=0) is False
            assert reader.checkpoint(7, timeout=60)
            write_episode(writer, 3)
    with replay.Replay.start(STATE, **options) as service:
        assert service.status()["tables"][0]["size"] == 8
    with replay.Replay.start(STATE, restore_checkpoint=7, **options) as service:
        assert service.status()["tables"][0]["size"] == 5


@pytest.mark.parametrize("process", ["thread", "child"])
def test_metrics_and_periodic_checkpoints_are_kept_up(tmp_path, process):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with replay.Replay.start(STATE, process=process, checkpoint_folder=tmp_path / "checkpoints",
                             checkpoint_interval_s=0.1, metrics_address=address) as service:
        with service.writer() as writer:
            write_episode(writer, 5)
        deadline = time.monotonic() + 60
        while service.status()["checkpoints"]["last"] == 0:
            assert time.monotonic() < deadline
        metrics = b""
        while b'replicant_replay_items{table="default"} 5' not in metrics:
            assert time.monotonic() < deadline
            with urllib.request.urlopen(f"http://{address}/metrics") as page:
                metrics = page.read()
    with pytest.raises(errors.ConfigError, match="shards: got 2, but a program's service is one shard"):
        replay.Replay.start(STATE, shards=2, bind="tcp://127.0.0.1:{shard}", process=process)


@pytest.mark.parametrize("process", ["thread", "child"])
def test_a_last_checkpoint_that_fails_is_an_error(tmp_path, process):
    folder, away = tmp_path / "checkpoints", tmp_path / "away"
    options = {"checkpoint_folder": str(folder)}
    service = replay.Replay.start(STATE, process=process, **options)
    with service.writer() as writer:
        write_episode(writer, 5)
    folder.rename(away)
    with pytest.raises(errors.IoError, match="the last checkpoint was not saved"):
        service.close()
    away.rename(folder)
    service.close()
    with replay.Replay.start(STATE, **options) as service:
        assert service.status()["tables"][0]["size"] == (5 if process == "thread" else 0)


@pytest.mark.parametrize("process", ["thread", "child"])
def test_an_address_is_free_once_its_service_is_closed(process):
    with replay.Replay.start(STATE) as service:
        address = service.endpoint
    for _ in range(3):
        with replay.Replay.start(STATE, bind=address, process=process) as again:
            assert again.endpoint == address


def test_a_service_with_keys_lets_in_who_is_listed(tmp_path):
    for name in ("service", "client", "stranger"):
        replay.make_keys(tmp_path / f"{name}.key", tmp_path / f"{name}.public")
    client = {"key_file": tmp_path / "client.key", "server_key_file": tmp_path / "service.public"}
    with replay.Replay.start(STATE, key_file=str(tmp_path / "service.key"),
                             allowed_clients_file=str(tmp_path / "client.public")) as service:
        with service.writer(**client) as writer:
            write_episode(writer, 8)
        with service.reader(batch_size=4, **client) as reader:
            assert len(reader.sample(timeout=60)) == 4
        assert service.status(60, **client)["tables"][0]["size"] == 8
        with pytest.raises(errors.CommError, match="only one of the two sides has CURVE keys"):
            service.status(60)
        with pytest.raises(errors.CommError, match="refused this side's CURVE key"):
            service.status(60, **client | {"key_file": tmp_path / "stranger.key"})
    with pytest.raises(errors.InvalidArgument, match="server_key_file: .*got no key_file"):
        service.status(server_key_file=tmp_path / "service.public")


def test_held_batches_keep_their_numbers_and_outlive_their_reader():
    signature = replay.Signature(((2,), "float32"), ((1,), "float32"), frame=((8, 8, 3), "uint8"))
    with replay.Replay.start(signature) as service:
        writer, reader = service.writer(), service.reader(batch_size=8)
        writer.begin()
        rng = np.random.default_rng(2)
        for t in range(50):
            assert writer.append([t, t], [t], t, frame=rng.integers(0, 255, (8, 8, 3), np.uint8))
        assert writer.end([50, 50], frame=np.zeros((8, 8, 3), np.uint8))
        held, copies, addresses = [], [], set()
        for k in range(40):
            batch = reader.sample(timeout=60)
            addresses.add(batch.frames.ctypes.data)
            part = [batch.frames, batch.observation[2:], batch.reward, batch][k % 4]
            if k % 5 == 0:
                held.append(part)
                copies.append(np.array(getattr(part, "next_frames", part)))
            del batch, part
        reader.close()
        del reader
        gc.collect()
        for part, copy in zip(held, copies):
            np.testing.assert_array_equal(getattr(part, "next_frames", part), copy)
        assert len(addresses) <= 8 + 2 + 4


def _use_after_fork(writer, reader, service, results):
    for call in (writer.begin, lambda: reader.sample(0.1)):
        try:
            call()
        except errors.Error as error:
            results.put(str(error))
    endpoint, signature = service.endpoint, service.signature
    with replay.Writer(endpoint, signature) as own:
        write_episode(own, 3)
    results.put("written")


def test_a_forked_child_makes_its_own_clients():
    context = multiprocessing.get_context("fork")
    with replay.Replay.start(STATE) as service:
        writer, reader = service.writer(), service.reader(batch_size=2)
        results = context.Queue()
        child = context.Process(target=_use_after_fork, args=(writer, reader, service, results))
        child.start()
        assert f"made in process {os.getpid()}" in results.get(timeout=60)
        assert f"made in process {os.getpid()}" in results.get(timeout=60)
        assert results.get(timeout=60) == "written"
        child.join(60)
        assert child.exitcode == 0
        assert len(reader.sample(timeout=60)) == 2


def test_a_fork_does_not_hold_up_a_child_service():
    context = multiprocessing.get_context("fork")
    service = replay.Replay.start(STATE, process="child")
    fork = context.Process(target=time.sleep, args=(60,))
    fork.start()
    began = time.monotonic()
    service.close()
    assert time.monotonic() - began < 30
    fork.kill()
    fork.join()


def await_end(pid):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.05)
    raise AssertionError("the child process still runs")


@pytest.mark.parametrize("fork", ["", "os.fork() or time.sleep(60)"])
def test_a_child_service_ends_with_its_parent(fork):
    program = f"""
import os, signal, time
from replicant import replay
service = replay.Replay.start(replay.Signature(((2,), "float32"), None), process="child")
print(service._server.pid, flush=True)
{fork}
os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                          start_new_session=True) as parent:
        pid = int(parent.stdout.readline())
        parent.wait(60)
        try:
            await_end(pid)
        finally:
            if fork:
                os.killpg(parent.pid, signal.SIGKILL)
