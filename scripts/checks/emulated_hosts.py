"""Hosts on one machine for checks: network namespaces on a bridge, each with its
own host name and, if wanted, its own sshd. Needs root."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

NETWORK = "10.214.0."
LAUNCHER = NETWORK + "1"
INSIDE = "--inside"
SKIPPED = 77


def skip(why):
    print(f"checks/{pathlib.Path(sys.argv[0]).name}: skipped: {why}")
    sys.exit(SKIPPED)


def enter_namespaces(programs):
    """Runs this script again in its own network and mount namespaces,
    hidden from the rest of the machine."""
    if INSIDE in sys.argv:
        sys.argv.remove(INSIDE)
        return
    if os.geteuid() != 0:
        skip("sshd needs root")
    for program in ["ip", "unshare", "nsenter"] + programs:
        if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin") is None:
            skip(f"{program} is not installed")
    unshare = ["unshare", "--net", "--mount"]
    probe = subprocess.run(unshare + ["ip", "link", "add", "bridge0", "type",
                                      "bridge"], capture_output=True, text=True)
    if probe.returncode != 0:
        skip("no network namespaces: " + probe.stderr.strip())
    os.execvp("unshare", unshare + [sys.executable] + sys.argv + [INSIDE])


def run(*words):
    subprocess.run([str(word) for word in words], check=True)


class Hosts:
    """`count` hosts, 10.214.0.2 and up; this namespace is 10.214.0.1."""

    def __init__(self, folder, count, has_ssh=True):
        self.folder, self.has_ssh = folder, has_ssh
        self.addresses = [f"{NETWORK}{i + 2}" for i in range(count)]
        self.keepers, self.servers = [], []
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "bridge0", "type", "bridge")
        run("ip", "address", "add", LAUNCHER + "/24", "dev", "bridge0")
        run("ip", "link", "set", "bridge0", "up")
        if has_ssh:
            # sshd keeps its own folder in /run
            run("mount", "-t", "tmpfs", "tmpfs", "/run")
            os.mkdir("/run/sshd")
            for key in ["host_key", "client_key"]:
                run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
                    folder / key)
            shutil.copy(folder / "client_key.pub", folder / "authorized_keys")
        for i in range(count):
            self._add(i)
            if has_ssh:
                self._serve(i)

    def _add(self, i):
        # lives as long as its standard input is open
        keeper = subprocess.Popen(
            ["unshare", "--net", "--uts", "sh", "-c",
             f"hostname host{i + 2} && echo ready && exec cat > /dev/null"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        keeper.stdout.readline()
        self.keepers.append(keeper)
        run("ip", "link", "add", f"link{i}", "type", "veth", "peer", "name", "eth0",
            "netns", keeper.pid)
        run("ip", "link", "set", f"link{i}", "master", "bridge0", "up")
        inside = self.enter(i)
        run(*inside, "ip", "link", "set", "lo", "up")
        run(*inside, "ip", "address", "add", self.addresses[i] + "/24", "dev",
            "eth0")
        run(*inside, "ip", "link", "set", "eth0", "up")

    def _serve(self, i):
        inside = self.enter(i)
        with open(self.folder / f"sshd-{i}.log", "w") as log:
            self.servers.append(subprocess.Popen(
                inside + ["/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null",
                          "-h", str(self.folder / "host_key"),
                          "-o", "StrictModes=no", "-o", "UsePAM=no",
                          "-o", "PidFile=none", "-o",
                          f"AuthorizedKeysFile={self.folder}/authorized_keys"],
                stdout=log, stderr=log))
        self._await_server(i)

    def _await_server(self, i):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if subprocess.run(self.ssh(self.addresses[i]) + ["true"],
                              capture_output=True).returncode == 0:
                return
            time.sleep(0.1)
        sys.exit(f"sshd of {self.addresses[i]} does not answer:\n"
                 + (self.folder / f"sshd-{i}.log").read_text())

    def enter(self, i):
        return ["nsenter", "--target", str(self.keepers[i].pid), "--net", "--uts"]

    def ssh(self, host="{host}"):
        return ["ssh", "-i", str(self.folder / "client_key"),
                "-o", f"UserKnownHostsFile={self.folder}/known_hosts",
                "-o", "StrictHostKeyChecking=accept-new",
                "-o", "LogLevel=ERROR", "-o", "BatchMode=yes",
                "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3",
                host]

    def cut(self, i):
        run("ip", "link", "set", f"link{i}", "down")

    def join(self, i):
        run("ip", "link", "set", f"link{i}", "up")

    def processes(self, name):
        """Process ids of the programs of this name, one list per host."""
        found = [[] for _ in self.addresses]
        spaces = {os.readlink(f"/proc/{keeper.pid}/ns/net"): i
                  for i, keeper in enumerate(self.keepers)}
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                host = spaces.get(os.readlink(process / "ns" / "net"))
                program = (process / "cmdline").read_bytes().split(b"\0")[0]
            except OSError:
                continue
            if host is not None and program.decode().endswith("/" + name):
                found[host].append(int(process.name))
        return found

    def close(self):
        for server in self.servers:
            server.kill()
            server.wait()
        for i, keeper in enumerate(self.keepers):
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    if (int(process.name) != keeper.pid
                            and os.readlink(process / "ns" / "net")
                            == os.readlink(f"/proc/{keeper.pid}/ns/net")):
                        os.kill(int(process.name), signal.SIGKILL)
                except OSError:
                    continue
            keeper.stdin.close()
            keeper.wait()
