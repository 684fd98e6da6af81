"""Wraps the kernel for a template and its monitors: rights, pipes, messages, process trees."""
import _signal
import _socket
import ctypes
import os
import resource
import struct

USER = GROUP = 1000
ROOT = os.geteuid() == 0
RT = 34                                          # RT+n asks a monitor to send signal n, in each C library
MONITORED = [_signal.SIGCHLD, _signal.SIGTERM] + list(range(RT + 1, RT + 31))

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 24, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
KEPT_CAPS = 1 << 5 | 1 << 6 | 1 << 7             # KILL, SETGID, SETUID
F_DUPFD_CLOEXEC = 1030

libc = ctypes.CDLL(None, use_errno=True)


def prctl(option, a=0, b=0):
    return libc.prctl(option, ctypes.c_ulong(a), ctypes.c_ulong(b), ctypes.c_ulong(0), ctypes.c_ulong(0))


def give_up_rights():
    """Keeps the rights to become the programs' user and to kill. Programs have none of them."""
    if ROOT:
        cap = 0
        while cap < 64 and prctl(PR_CAPBSET_DROP, cap) == 0:
            cap += 1
        os.setgroups([])
        header = struct.pack("<Ii", 0x20080522, 0)
        caps = ctypes.create_string_buffer(24)
        libc.capget(header, caps)
        permitted = struct.unpack("<6I", caps.raw)[1] & KEPT_CAPS
        libc.capset(header, struct.pack("<6I", permitted, permitted, 0, 0, 0, 0))
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o022)


def open_pipes(directions):
    """Pipes of the effective user; True is one that the program reads. Returns our
    ends, which don't block, and the program's."""
    ours, theirs = [], []
    for reads in directions:
        r, w = os.pipe()
        ours.append(w if reads else r)
        theirs.append(r if reads else w)
        os.set_blocking(ours[-1], False)
    return ours, theirs


def user_pipes(directions):
    """Pipes that uid 1000 owns, so that a program can open its own streams again."""
    if not ROOT:
        return open_pipes(directions)
    os.seteuid(USER)
    try:
        return open_pipes(directions)
    finally:
        os.seteuid(0)


def close_all(fds):
    for fd in fds:
        os.close(fd)


def write_file(path, data):
    try:
        fd = os.open(path, os.O_WRONLY)
        os.write(fd, data)
        os.close(fd)
    except OSError:
        pass


# ---- messages between our processes, with descriptors -----------------------

def adopt_socket(fd):
    return _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, fd)


def told(sock, message, fds=()):
    """Sends a message; returns false if nobody can receive it any more."""
    try:
        if fds:
            sock.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("%di" % len(fds), *fds))])
        else:
            sock.send(message)
        return True
    except OSError:
        return False


ROOM = _socket.CMSG_SPACE(4 * 8)                 # for up to eight descriptors


def hear(sock, size):
    """Returns one message and its descriptors; b"" is the end."""
    data, extra, _, _ = sock.recvmsg(size, ROOM, _socket.MSG_CMSG_CLOEXEC)
    if not extra:
        return data, ()
    packed = extra[0][2]
    return data, struct.unpack("%di" % (len(packed) // 4), packed)


# ---- process trees ----------------------------------------------------------

def kill(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        pass


def children(pid):
    found = []
    try:
        for tid in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, tid), "rb") as f:
                found += filter(None, map(int, f.read().split()))    # gVisor lists an exiting process as 0
    except FileNotFoundError:
        if pid == os.getpid():                   # a kernel without that file
            found = [p for p, parent in parents() if parent == pid]
    except OSError:
        pass
    return found


def parents():
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "0":
            try:
                with open("/proc/%s/stat" % name, "rb") as f:
                    yield int(name), int(f.read().rpartition(b")")[2].split()[1])
            except OSError:
                pass


def descendants(roots):
    seen, todo = set(roots), list(roots)
    while todo:
        for pid in children(todo.pop()):
            if pid not in seen:
                seen.add(pid)
                todo.append(pid)
    return seen


def kill_trees(roots, rounds):
    """Kills our children; theirs become ours, for the next round. Only we reap them, so
    no number is reused. A tree that forks faster than it dies is stopped as a whole
    first."""
    if rounds > 3:
        for pid in descendants(roots):
            kill(pid, _signal.SIGSTOP)
    for pid in roots:
        kill(pid, _signal.SIGKILL)
