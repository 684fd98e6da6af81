"""A monitor of Python programs, like package monitor for others: it closes its parent's
resources, ends a program's process tree and reports."""
import _signal
import fcntl
import os
import resource
import struct
import time

from .kernel import (F_DUPFD_CLOEXEC, MONITORED, PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, RT, adopt_socket, children,
                     kill, kill_trees, prctl)

# The end of a program: wait status, user and system seconds, KiB of its largest resident set, whether an orphan of it
# was killed.
REPORT = struct.Struct("<iddq?")


def become_monitor(sock, parent):
    """Closes all resources of the parent in a fresh fork."""
    _signal.pthread_sigmask(_signal.SIG_BLOCK, MONITORED)
    for _ in range(2000):                        # a template's intermediate parent is about to end
        if os.getppid() == parent:
            break
        time.sleep(0.001)
    prctl(PR_SET_PDEATHSIG, _signal.SIGTERM)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent:
        os._exit(0)
    high = keep_only(sock)
    for _ in range(7):                           # 3 to 9 stay taken: a pipe never lies where dup2 puts one
        os.dup(0)
    return adopt_socket(high)


def keep_only(sock):
    """Closes all descriptors but that of a socket, which moves; 0 to 2 are null."""
    high = fcntl.fcntl(sock.fileno(), F_DUPFD_CLOEXEC, 200)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.closerange(3, high)
    os.closerange(high + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    sock.detach()
    return high


def see_to_end(pid):
    """Waits for pid, then kills until no descendant is left. The proof is that no child is
    left (ECHILD), because every orphan becomes our child. Returns the report, and
    whether the agent ordered the end."""
    report, ending, asked, rounds = None, False, False, 0
    orphan_killed = False
    while True:
        try:
            got, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return REPORT.pack(*report, orphan_killed), asked
        if got == pid:
            report = (status, usage.ru_utime, usage.ru_stime, usage.ru_maxrss)
            ending = True
        elif got:
            orphan_killed |= not ending and os.WIFSIGNALED(status) and os.WTERMSIG(status) == _signal.SIGKILL
        elif ending:
            rounds += 1
            kill_trees(children(os.getpid()), rounds)
            _signal.sigtimedwait(MONITORED, 0 if rounds < 100 else 0.001)
        else:
            asked = ending = heed(_signal.sigwait(MONITORED), pid)


def heed(number, pid):
    """Executes the agent's orders; returns true if everything must end. pid is not yet
    reaped here, so its number isn't reused."""
    if number == _signal.SIGTERM:
        kill(-pid, _signal.SIGKILL)
        kill(pid, _signal.SIGKILL)
        return True
    if number > RT:
        kill(-pid, number - RT)
    return False
