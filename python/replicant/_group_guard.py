"""Ends what an environment has started once its role has died.

A simulator that an environment starts is a child of the role. The fleet ends it with the role's
process group. If the fleet itself is killed, the kernel kills the roles, and nobody would end
their children.
"""

import ctypes
import os
import select
import signal

_PR_GET_PDEATHSIG = 2


def _dies_with_parent() -> bool:
    """Whether a fleet has started this process."""
    number = ctypes.c_int()
    return ctypes.CDLL(None).prctl(_PR_GET_PDEATHSIG, ctypes.byref(number)) == 0 and number.value > 0


def start() -> None:
    """Starts a process that kills this process's group when this process has ended, whatever ends
    it. Nothing happens unless this process was started by a fleet and leads its group. Call it
    before there are threads."""
    role = os.getpid()
    if os.getpgrp() != role or not _dies_with_parent():
        return
    ended = os.pidfd_open(role)
    child = os.fork()
    if child == 0:
        # a grandchild, so that the role has no child that it does not know
        if os.fork() == 0:
            _guard(role, ended)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(ended)


def _guard(role: int, ended: int) -> None:
    # orders to the group are for the role
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    select.select([ended], [], [])
    os.killpg(role, signal.SIGKILL)
