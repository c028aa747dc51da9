"""A Slurm cluster of this user on this machine, for checks: its own munge key,
controller and nodes, all on loopback. Needs root, slurm-wlm and munge."""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

CONFIG = """\
ClusterName=check
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# a requeued job begins when its old credential has expired
AuthInfo=socket={folder}/munge.sock,cred_expire=5
CredType=cred/munge
SlurmctldPort={port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdSpoolDir={folder}/spool/%n
StateSaveLocation={folder}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{parameters}
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=30
MinJobAge=300
SlurmctldTimeout=30
SlurmdTimeout=60
{nodes}
{partitions}
"""


class Cluster:
    """Nodes n1, n2, ...; `partitions` are lines of slurm.conf. `warns`: a job's signal comes when
    the grace time of a preemption begins."""

    def __init__(self, folder, num_nodes, partitions, cpus=8, warns=True):
        self.folder, self.daemons = folder, []
        self.config = folder / "slurm.conf"
        host = socket.gethostname().split(".")[0]
        base = 20000 + 8 * os.getpid() % 12000
        nodes = "\n".join(
            f"NodeName=n{i + 1} NodeHostname={host} NodeAddr=127.0.0.1 "
            f"Port={base + i + 1} CPUs={cpus} RealMemory=4000 State=UNKNOWN"
            for i in range(num_nodes))
        (folder / "state").mkdir()
        self.config.write_text(CONFIG.format(
            host=host, folder=folder, port=base, nodes=nodes,
            parameters="SlurmctldParameters=preempt_send_user_signal" if warns else "",
            partitions="\n".join(partitions)))
        self.environment = dict(os.environ, SLURM_CONF=str(self.config))
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        os.chmod(folder, 0o755)
        self._start("munged", "--foreground", f"--key-file={key}",
                    f"--socket={folder}/munge.sock",
                    f"--pid-file={folder}/munged.pid",
                    f"--log-file={folder}/munged.log",
                    f"--seed-file={folder}/munged.seed", "--force")
        self._await(lambda: (folder / "munge.sock").exists())
        self._start("slurmctld", "-D", "-f", self.config, "-c")
        for i in range(num_nodes):
            (folder / "spool" / f"n{i + 1}").mkdir(parents=True)
            self._start("slurmd", "-D", "-f", self.config, "-N", f"n{i + 1}")
        self._await(lambda: self.run("sinfo", "-h", "-o", "%T", "-N", check=False)
                    .split().count("idle") >= num_nodes)

    def _start(self, *words):
        log = self.folder / f"{words[0]}-{len(self.daemons)}.out"
        program = shutil.which(words[0], path="/usr/sbin:" + os.environ["PATH"])
        with open(log, "w") as output:
            self.daemons.append(subprocess.Popen(
                [program] + [str(word) for word in words[1:]], stdout=output,
                stderr=output, env=self.environment))

    def _await(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            if time.monotonic() > deadline:
                for log in [*self.folder.glob("*.log"), *self.folder.glob("*.out")]:
                    print(log, log.read_text()[-2000:])
                sys.exit("the cluster does not start")
            time.sleep(0.1)

    def run(self, *words, check=True):
        """What a command prints; it uses this cluster."""
        result = subprocess.run([str(word) for word in words], text=True,
                                capture_output=True, env=self.environment)
        if check and result.returncode != 0:
            sys.exit(f"{' '.join(map(str, words))}: {result.stdout}"
                     f"{result.stderr}")
        return result.stdout

    def close(self):
        self.run("scancel", "--user=root", check=False)
        deadline = time.monotonic() + 20
        while (self.run("squeue", "-h", check=False).strip()
               and time.monotonic() < deadline):
            time.sleep(0.2)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
