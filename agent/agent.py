"""The resident process of a wisbox sandbox.

It speaks the protocol of package agent (doc.go) on descriptors 0 and 1 and runs
programs for the host. Three kinds of process, all uid 0 but the last:

  agent    this one: the stream, the timers, the pumps; never runs user code
  monitor  one for each program that runs or is about to; a child subreaper, so
           that its descendants are exactly its program's tree, however they
           fork; it kills what is left of that tree and reports
  program  forked by its monitor ahead of time; it gives up uid 0 when its
           request comes and becomes the program

A template is a further child that executed a trusted Python source once;
monitors of Python programs are forked from it.
"""
import collections
import ctypes
import errno
import fcntl
import gc
import heapq
import json
import marshal
import os
import resource
import select
import signal
import socket
import struct
import sys
import termios
import time

VERSION = 1
MAX_FRAME = 1 << 20          # bytes of payload, both directions
CHUNK = 64 << 10             # bytes of data in one frame
WINDOW = 256 << 10           # bytes in flight on one channel
BACKLOG = 512 << 10          # bytes queued for the host before programs wait
DRAIN = 1 << 20              # bytes of the buffer that thrown-away output is read into
INLINE = 64 << 10            # larger requests go to the program in a memfd
SLOTS = 100                  # programs at once
IDLE = 5.0                   # seconds after which spare monitors go
REST = 0.0005                # seconds a monitor leaves the processor to the report
START = 3.0                  # seconds a call waits for a process to be had

RUN, KILL, SIGNAL, RESIZE, SOURCE, PING, LIMITS = range(0x01, 0x08)
DATA, CREDIT, TAIL = 0x10, 0x20, 0x30            # | channel
HELLO, PONG, LIMITS_ARE, STARTED, EXIT = range(0x41, 0x46)
STDIN, STDOUT, STDERR, CTL_IN, CTL_OUT = range(5)

USER = GROUP = 1000
SHELL_PATH = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BASE_ENV = {b"HOME": b"/tmp/home", b"PATH": SHELL_PATH, b"LANG": b"C.UTF-8", b"PYTHONDONTWRITEBYTECODE": b"1"}

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 24, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
KEPT_CAPS = 1 << 5 | 1 << 6 | 1 << 7             # KILL, SETGID, SETUID
RT = signal.SIGRTMIN                             # RT+n asks a monitor to send signal n
MONITORED = [signal.SIGCHLD, signal.SIGTERM] + list(range(RT + 1, signal.SIGRTMAX + 1))
REPORT = struct.Struct("<iddq?")                 # wait status, user s, system s, max rss KiB, an orphan was killed
HEAD = struct.Struct(">IBI")

libc = ctypes.CDLL(None, use_errno=True)
ROOT = os.geteuid() == 0


def prctl(option, a=0, b=0):
    return libc.prctl(option, ctypes.c_ulong(a), ctypes.c_ulong(b), ctypes.c_ulong(0), ctypes.c_ulong(0))


# ---- rights ---------------------------------------------------------------

def give_up_rights():
    """Keeps what is needed to drop and to kill; what this can't do is said in the hello."""
    gaps = []
    if ROOT:
        cap = 0
        while cap < 64 and prctl(PR_CAPBSET_DROP, cap) == 0:
            cap += 1
        if cap == 0:
            gaps.append("the capability bounding set of programs is not empty")
        os.setgroups([])
        header = struct.pack("<Ii", 0x20080522, 0)
        caps = ctypes.create_string_buffer(24)
        libc.capget(header, caps)
        permitted = struct.unpack("<6I", caps.raw)[1] & KEPT_CAPS
        if libc.capset(header, struct.pack("<6I", permitted, permitted, 0, 0, 0, 0)) != 0 or permitted != KEPT_CAPS:
            gaps.append("the agent has not the capabilities it needs")
    else:
        gaps.append("the agent is not uid 0: programs run as its own user")
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o022)
    return gaps


def user_pipes(directions):
    """Pipes that uid 1000 owns, so that a program can open its own streams again.

    True is a pipe that the program reads; gives our ends and the program's.
    """
    if ROOT:
        os.seteuid(USER)
    ours, theirs = [], []
    try:
        for reads in directions:
            r, w = os.pipe()
            ours.append(w if reads else r)
            theirs.append(r if reads else w)
    finally:
        if ROOT:
            os.seteuid(0)
    for fd in ours:
        os.set_blocking(fd, False)
    return ours, theirs


# ---- monitor --------------------------------------------------------------

def become_monitor(sock, parent):
    """A fresh fork lets go of all that is its parent's."""
    signal.pthread_sigmask(signal.SIG_BLOCK, MONITORED)
    for _ in range(2000):                        # a template's intermediate parent is about to end
        if os.getppid() == parent:
            break
        time.sleep(0.001)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent:
        os._exit(0)
    keep = sock.fileno()
    high = fcntl.fcntl(keep, fcntl.F_DUPFD_CLOEXEC, 200)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.closerange(3, high)
    os.closerange(high + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    sock.detach()
    for _ in range(7):                           # 3 to 9 stay taken: a pipe never lies where dup2 puts one
        os.dup(0)
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, high)


def monitor(sock, parent, main):
    try:
        sock = become_monitor(sock, parent)
        while watch_one(sock, main):
            pass
    finally:
        os._exit(0)


def watch_one(sock, main):
    """Makes one program ready, sees it and its tree to the end, reports."""
    try:
        ours, theirs = user_pipes((True, False, False) if main is None else (True, False, False, True, False))
        pid = os.fork()
    except OSError as e:
        return told(sock, b"F%d" % e.errno) and signal.sigtimedwait([signal.SIGTERM], 0.05) is None
    if pid == 0:
        program(sock, theirs, main)
    for fd in theirs:
        os.close(fd)
    if not told(sock, b"R%d" % os.getpid(), ours):
        os.kill(pid, signal.SIGKILL)
    for fd in ours:
        os.close(fd)
    report, asked = see_to_end(pid)
    if not told(sock, b"X" + report) or asked:
        return False
    return signal.sigtimedwait([signal.SIGTERM], REST) is None


def told(sock, message, fds=()):
    try:
        socket.send_fds(sock, [message], fds)
        return True
    except OSError:
        return False


def see_to_end(pid):
    """Waits for pid, then kills until no descendant is left: that there is no
    child any more (ECHILD) is the proof, for every orphan comes to us. Gives the
    report, and whether the agent asked for the end."""
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
            orphan_killed |= not ending and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        elif ending:
            rounds += 1
            kill_children(rounds)
            signal.sigtimedwait(MONITORED, 0 if rounds < 100 else 0.001)
        else:
            asked = ending = heed(signal.sigwaitinfo(MONITORED).si_signo, pid)


def heed(number, pid):
    """Acts on what the agent asked for; true when all is to end. pid is not yet
    reaped here, so its number is no other's."""
    if number == signal.SIGTERM:
        kill(-pid, signal.SIGKILL)
        kill(pid, signal.SIGKILL)
        return True
    if number > RT:
        kill(-pid, number - RT)
    return False


def kill(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        pass


def kill_children(rounds):
    """Kills our children; theirs come to us. Only we reap them, so no number is
    another's. A tree that forks faster than it dies is stopped whole first."""
    mine = children(os.getpid())
    if rounds > 3:
        for pid in descendants(mine):
            kill(pid, signal.SIGSTOP)
    for pid in mine:
        kill(pid, signal.SIGKILL)


def children(pid):
    found = []
    try:
        for tid in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, tid), "rb") as f:
                found += map(int, f.read().split())
    except FileNotFoundError:
        if pid == os.getpid():                   # a kernel without that file
            found = [p for p, parent in parents() if parent == pid]
    except OSError:
        pass
    return found


def parents():
    for name in os.listdir("/proc"):
        if name.isdigit():
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


# ---- program --------------------------------------------------------------

class StartError(Exception):
    """The program can't be started as asked: kind is for the host to map."""


def program(sock, fds, main):
    """The life of a program's process up to exec. Never returns."""
    code = 127
    try:
        parent = os.getppid()
        prepare(fds)
        rehearse()
        request = receive(sock)
        if not request:
            os._exit(0)
        drop(parent)
        head, argv, env = marshal.loads(request)
        enter(head["dir"])
        make_home()
        if head["tty"] or head["control"] or head["notify"]:
            extras(sock, head, main)
        if main is None:
            code = execute(argv, env)
        else:
            code = call_main(sock, main, argv, env)
    except StartError as e:
        told(sock, b"E" + json.dumps({"kind": e.args[0], "message": e.args[1]}).encode())
    except BaseException as e:
        told(sock, b"E" + json.dumps({"kind": "internal", "message": type(e).__name__}).encode())
    finally:
        os._exit(code)


def prepare(fds):
    """All that can be done before the request is known. Real uid 0 stays until
    then: nothing that runs here can signal or trace this process."""
    os.setsid()
    os.nice(10)
    write_file("/proc/self/oom_score_adj", b"1000")
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    for fd in fds:
        os.close(fd)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if ROOT:
        os.setresgid(GROUP, GROUP, GROUP)


def write_file(path, data):
    try:
        fd = os.open(path, os.O_WRONLY)
        os.write(fd, data)
        os.close(fd)
    except OSError:
        pass


def make_home():
    """It lies in a tmpfs that programs may empty."""
    try:
        os.mkdir(BASE_ENV[b"HOME"], 0o700)
    except OSError:
        pass


def receive(sock):
    data, fds, _, _ = socket.recv_fds(sock, INLINE + 1, 1)
    if not fds:
        return data
    with open(fds[0], "rb") as f:
        return f.read()


def drop(parent):
    if ROOT:
        os.setresuid(USER, USER, USER)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def rehearse():
    """Touches what the way from request to exec touches, so that the pages
    which the fork shares are copied now and not then."""
    marshal.loads(marshal.dumps(({"dir": "", "tty": None}, [b"a"], dict(BASE_ENV))))
    if ROOT:
        os.setresuid(0, 0, 0)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.getppid()
    try:
        enter("")
    except StartError:
        pass
    try:
        os.execve(b"/", [b"a"], BASE_ENV)
    except OSError:
        pass


def enter(directory):
    """Enters a directory of the workspace with the program's own rights; the
    kernel says afterwards where that really is, whatever links led there."""
    base = WORKSPACE
    try:
        os.chdir(base)
        if directory:
            os.chdir(directory)
            at = os.getcwd()
            if at != base and not at.startswith(base.rstrip("/") + "/"):
                raise StartError("escape", "it leads out of the workspace")
    except FileNotFoundError:
        raise StartError("not_found", "it does not exist")
    except NotADirectoryError:
        raise StartError("not_dir", "it is not a directory")
    except OSError as e:
        raise StartError("permission" if e.errno == errno.EACCES else "invalid", os.strerror(e.errno).lower())


def extras(sock, head, main):
    """A terminal, or the control pipes of a program that is not Python."""
    if head["tty"]:
        master, slave = os.openpty()
        set_size(master, head["tty"])
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for fd in range(3):
            os.dup2(slave, fd)
        os.close(slave)
        told(sock, b"T", [master])
        os.close(master)
    if head["control"] and main is None:
        r, ctl_in = os.pipe()
        ctl_out, w = os.pipe()
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (r, w)]
        told(sock, b"C", [ctl_in, ctl_out])
        for fd in (r, w, ctl_in, ctl_out):
            os.close(fd)
        os.dup2(ends[0], 3)
        os.dup2(ends[1], 4)
    if head["notify"]:
        told(sock, b"S")


def set_size(fd, size):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))


def execute(argv, env):
    """Becomes the program, or says on stderr why not, as a shell does."""
    name, failure = argv[0], errno.ENOENT
    if b"/" in name:
        paths = [name]
    else:
        paths = [d + b"/" + name for d in env.get(b"PATH", SHELL_PATH).split(b":") if d] if name else []
    for path in paths:
        try:
            os.execve(path, argv, env)
        except OSError as e:
            if e.errno not in (errno.ENOENT, errno.ENOTDIR):
                failure = e.errno
    missing = failure == errno.ENOENT
    if missing and b"/" not in name:
        text = b"command not found"
    else:
        text = os.strerror(failure).lower().encode()
    os.write(2, (name or b"''") + b": " + text + b"\n")
    return 127 if missing else 126


def call_main(sock, main, argv, env):
    sock.close()
    os.closerange(5, 300)
    os.environb.clear()
    os.environb.update(env)
    sys.argv = [argv[0].decode()]
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.enable()
    return run_python(lambda: main(open(3, "rb"), open(4, "wb", 0)))


def run_python(main):
    """What the interpreter itself does around a main program."""
    code = 0
    try:
        main()
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 0 if e.code is None else 1
        if e.code is not None and not isinstance(e.code, int):
            print(e.code, file=sys.stderr)
    except BaseException:
        import traceback
        traceback.print_exc()
        code = 1
    for finish in (end_threads, sys.stdout.flush, sys.stderr.flush):
        try:
            finish()
        except BaseException:
            code = code or 120
    return code & 0xff


def end_threads():
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    import atexit
    atexit._run_exitfuncs()


# ---- template -------------------------------------------------------------

def template(control, parent, name, source):
    """Executes a trusted source once and forks monitors of its main on demand.
    The monitors become the agent's children: the fork between them ends."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fcntl.fcntl(control.detach(), fcntl.F_DUPFD_CLOEXEC, 200))
        null = os.open("/dev/null", os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        os.closerange(3, control.fileno())
        os.closerange(control.fileno() + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        try:
            main = load(name, source)
        except BaseException as e:
            told(control, b"E" + ("%s: %s" % (type(e).__name__, e)).encode()[:4000])
            return
        told(control, b"L")
        while True:
            _, fds, _, _ = socket.recv_fds(control, 1, 1, socket.MSG_CMSG_CLOEXEC)
            if not fds:
                return
            fork_monitor(control, parent, main, fds[0])
    finally:
        os._exit(0)


def fork_monitor(control, parent, main, fd):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fd)
    try:
        between = os.fork()
    except OSError:
        sock.close()                             # the agent sees the end of it
        return
    if between == 0:
        try:
            if os.fork() == 0:
                monitor(sock, parent, main)
        finally:
            os._exit(0)
    sock.close()
    os.waitpid(between, 0)


def load(name, source):
    import io
    import site
    import traceback  # noqa: F401, for run_python
    import types
    site.main()
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), "utf-8", "surrogateescape")
    sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), "utf-8", "surrogateescape")
    sys.stderr = io.TextIOWrapper(open(2, "wb", closefd=False), "utf-8", "backslashreplace", line_buffering=True)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    sys.modules["__main__"] = types.ModuleType("__main__")
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, "<%s>" % name, "exec"), module.__dict__)
    gc.collect()
    gc.freeze()
    return module.main


# ---- what the kernel says -------------------------------------------------

class Events:
    """The cgroup's counters of out-of-memory kills and refused forks."""
    FILES = (("/sys/fs/cgroup/memory.events", b"oom_kill"), ("/sys/fs/cgroup/pids.events", b"max"),
             ("/sys/fs/cgroup/memory/memory.oom_control", b"oom_kill"), ("/sys/fs/cgroup/pids/pids.events", b"max"))

    def __init__(self):
        self.files = []
        for i, (path, key) in enumerate(self.FILES):
            try:
                self.files.append((os.open(path, os.O_RDONLY), key, i % 2))
            except OSError:
                pass
        self.last = self.read()

    def read(self):
        counts = [0, 0]
        for fd, key, i in self.files:
            words = os.pread(fd, 4096, 0).split()
            if key in words:
                counts[i] += int(words[words.index(key) + 1])
        self.last = counts
        return counts


def limits():
    names = {"memory": ("memory.max", "memory/memory.limit_in_bytes"),
             "swap": ("memory.swap.max", "memory/memory.memsw.limit_in_bytes"),
             "pids": ("pids.max", "pids/pids.max"), "cpu": ("cpu.max", "cpu/cpu.cfs_quota_us"),
             "cpu_period": ("", "cpu/cpu.cfs_period_us")}
    found = {}
    for name, paths in names.items():
        for path in paths:
            try:
                with open("/sys/fs/cgroup/" + path) as f:
                    found[name] = f.read().strip()
            except OSError:
                pass
    return found


def hello(gaps):
    with open("/proc/self/status") as f:
        status = dict(line.split(":\t", 1) for line in f if ":\t" in line)
    return {"version": VERSION, "python": "%d.%d.%d" % sys.version_info[:3], "uid": os.getuid(), "pid": os.getpid(),
            "caps": status.get("CapPrm", "").strip(), "bounding": status.get("CapBnd", "").strip(),
            "seccomp": status.get("Seccomp", "").strip() == "2",
            "cgroup": 2 if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else 1,
            "limits": limits(), "gaps": gaps,
            "rlimits": {n[7:].lower(): resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")}}


# ---- agent ----------------------------------------------------------------

class Lost(Exception):
    """The stream broke or broke the protocol: everything ends."""


class Out:
    """One stream from a program: forwarded while it may be, then thrown away
    but for its tail."""

    def __init__(self, call, channel, fd, forward, tail):
        self.call, self.channel, self.fd = call, channel, fd
        self.forward, self.keep = forward, tail  # bytes still to pass on (-1: all), bytes of tail to keep
        self.window, self.total, self.tail = WINDOW, 0, b""
        self.rest = None                         # once the tree is gone: bytes that the pipe may still hold
        self.polled, self.grown = False, False


class In:
    """One stream to a program."""

    def __init__(self, call, channel):
        self.call, self.channel, self.fd = call, channel, -1
        self.queue, self.queued, self.eof = collections.deque(), 0, False
        self.owed, self.polled, self.closed = 0, False, False


class Slot:
    """A monitor and its program that waits, or runs a call."""

    def __init__(self, pool, sock):
        self.pool, self.sock, self.pid, self.fds, self.call, self.since = pool, sock, 0, [], None, 0.0
        self.doomed = False                      # it was signalled: a late signal must not meet its next call


class Pool:
    """The slots of one kind: of plain programs, or of one template."""

    def __init__(self, spare, name="", source=None):
        self.spare, self.name, self.source = spare, name, source
        self.ready, self.waiting = collections.deque(), collections.deque()
        self.size, self.births = 0, 0            # slots in all, and those not yet ready
        self.control, self.loaded = None, False


def parse(request):
    """A request is a line of JSON, then argv and environment as NUL-ended byte
    strings; gives the head, and what the program's process needs to know."""
    line, _, rest = request.partition(b"\n")
    head = json.loads(line)
    words = rest.split(b"\0")
    env = dict(BASE_ENV)
    if head["tty"]:
        env[b"TERM"] = b"xterm-256color"
    for pair in words[head["argc"]:-1]:
        key, _, value = pair.partition(b"=")
        env[key] = value
    return head, marshal.dumps((head, words[:head["argc"]], env))


class Call:
    def __init__(self, number, request):
        self.number = number
        self.head, self.request = parse(request)
        self.slot, self.outs, self.ins, self.totals, self.tails = None, {}, {}, [0] * 5, []
        self.began, self.lasted, self.report, self.reason, self.error = 0, 0, None, None, None
        self.shared, self.before = False, None
        if self.head["stdin"]:
            self.ins[STDIN] = In(self, STDIN)
        if self.head["control"] > 1:
            self.ins[CTL_IN] = In(self, CTL_IN)


class Agent:
    def __init__(self, options):
        self.once = options["once"]
        self.epoll = select.epoll()
        self.handlers = {}
        self.calls, self.pools, self.slots = {}, {"": Pool(1 if self.once else 2)}, 0
        self.timers, self.tick, self.deadlines = [], 0, {}
        self.inbuf, self.out, self.out_size, self.stalled = bytearray(), collections.deque(), 0, set()
        self.writing, self.done = False, False
        self.drain, self.own = None, set()
        self.events = Events()

    # -- stream

    def serve(self, gaps):
        for fd in (0, 1):
            os.set_blocking(fd, False)
        self.watch(0, select.EPOLLIN, self.read_host)
        self.fill(self.pools[""])
        self.send(HELLO, 0, json.dumps(hello(gaps)).encode())
        gc.collect()
        gc.freeze()
        gc.disable()
        while not (self.done and not self.out):
            self.flush()
            for fd, event in self.epoll.poll(self.patience()):
                handler = self.handlers.get(fd)
                if handler is not None:
                    handler(event)
            self.ring()

    def patience(self):
        """Seconds until something is due, -1 when nothing is."""
        due = min(self.deadlines.values(), default=None)
        if self.timers:
            due = self.timers[0][0] if due is None else min(due, self.timers[0][0])
        return -1 if due is None else max(0.0, due - time.monotonic())

    def ring(self):
        if self.deadlines:
            now = time.monotonic()
            for number in [n for n, due in self.deadlines.items() if due <= now]:
                del self.deadlines[number]
                self.end(self.calls[number], "timed_out")
        while self.timers and self.timers[0][0] <= time.monotonic():
            heapq.heappop(self.timers)[2]()

    def watch(self, fd, events, handler):
        self.handlers[fd] = handler
        self.epoll.register(fd, events)

    def unwatch(self, fd):
        if self.handlers.pop(fd, None) is not None:
            self.epoll.unregister(fd)

    def after(self, seconds, action):
        self.tick += 1
        heapq.heappush(self.timers, (time.monotonic() + seconds, self.tick, action))

    def read_host(self, event):
        try:
            data = os.read(0, 256 << 10)
        except BlockingIOError:
            return
        if not data:
            raise Lost("end of stream")
        buf, at = self.inbuf, 0
        buf += data
        while len(buf) - at >= HEAD.size:
            length, kind, number = HEAD.unpack_from(buf, at)
            if length > MAX_FRAME:
                raise Lost("frame too large")
            if len(buf) - at < HEAD.size + length:
                break
            at += HEAD.size
            self.frame(kind, number, bytes(buf[at:at + length]))
            at += length
        del buf[:at]

    def send(self, kind, number, payload=b""):
        self.out.append(HEAD.pack(len(payload), kind, number) + payload)
        self.out_size += HEAD.size + len(payload)

    def flush(self, event=0):
        while self.out:
            try:
                n = os.writev(1, [self.out[i] for i in range(min(len(self.out), 64))])
            except BlockingIOError:
                if not self.writing:
                    self.writing = True
                    self.watch(1, select.EPOLLOUT, self.flush)
                return
            except OSError:
                raise Lost("write to host")
            self.out_size -= n
            while n:
                first = self.out.popleft()
                if len(first) > n:
                    self.out.appendleft(memoryview(first)[n:])
                    n = 0
                else:
                    n -= len(first)
        if self.writing:
            self.writing = False
            self.unwatch(1)
        if self.stalled:
            stalled, self.stalled = self.stalled, set()
            for out in stalled:
                self.poll_out(out)

    # -- frames

    def frame(self, kind, number, payload):
        call = self.calls.get(number)
        channel = kind & 0x0f
        if kind == RUN:
            self.run(number, payload)
        elif kind == PING:
            self.send(PONG, number, payload)
        elif kind == LIMITS:
            self.send(LIMITS_ARE, number, json.dumps(limits()).encode())
        elif kind == SOURCE:
            name, _, source = payload.partition(b"\n")
            key, _, name = name.decode().partition(" ")
            self.pools[key] = Pool(1, name, source)
        elif kind & 0xf0 == DATA and channel in (STDIN, CTL_IN):
            if call and channel in call.ins:
                self.feed(call.ins[channel], payload)
        elif kind & 0xf0 == CREDIT and len(payload) == 4 and channel in (STDOUT, STDERR, CTL_OUT):
            if call and channel in call.outs:
                out = call.outs[channel]
                out.window += struct.unpack(">I", payload)[0]
                self.poll_out(out)
        elif kind == KILL:
            if call:
                self.end(call, payload.decode("ascii", "replace") or "cancelled")
        elif kind == SIGNAL and len(payload) == 1:
            if call and call.slot and 0 < payload[0] <= 30:
                call.slot.doomed = True
                kill(call.slot.pid, RT + payload[0])
        elif kind == RESIZE and len(payload) == 4:
            if call and call.head["tty"] and STDOUT in call.outs:
                set_size(call.outs[STDOUT].fd, struct.unpack(">HH", payload))
        else:
            raise Lost("unknown frame")

    def run(self, number, payload):
        if number in self.calls:
            raise Lost("call number used twice")
        call = self.calls[number] = Call(number, payload)
        pool = self.pools[call.head["python"]]
        if pool.ready:
            self.dispatch(call, pool.ready.popleft())
        else:
            pool.waiting.append(call)
            self.fill(pool)
            self.after(START, lambda: self.no_process(call, pool))

    def no_process(self, call, pool):
        if call in pool.waiting and pool.control and not pool.loaded:
            self.after(START, lambda: self.no_process(call, pool))
        elif call in pool.waiting:
            pool.waiting.remove(call)
            call.reason = "pids_limit"
            self.finish(call)

    # -- slots

    def fill(self, pool):
        """Has as many programs ready as are waited for, and the spare ones."""
        while not self.done and self.slots < SLOTS and self.wants(pool):
            if pool.source is not None and not self.has_template(pool):
                return
            mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                self.give_birth(pool, its)
            except OSError:
                mine.close()
                self.after(0.05, lambda: pool.waiting and self.fill(pool))
                return
            finally:
                its.close()
            mine.setblocking(False)
            self.add_slot(Slot(pool, mine))

    def wants(self, pool):
        coming = len(pool.ready) + pool.births
        return coming < len(pool.waiting) or pool.size < pool.spare or not coming and not self.once

    def add_slot(self, slot):
        slot.pool.births += 1
        slot.pool.size += 1
        self.slots += 1
        self.watch(slot.sock.fileno(), select.EPOLLIN, lambda event: self.heard(slot))

    def give_birth(self, pool, sock):
        if pool.source is not None:
            socket.send_fds(pool.control, [b"N"], [sock.fileno()])
            return
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            monitor(sock, parent, None)
        self.own.add(pid)

    def has_template(self, pool):
        """Starts the pool's template; true once it has loaded its source."""
        if pool.control is None:
            mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            parent = os.getpid()
            try:
                pid = os.fork()
            except OSError:
                self.after(0.05, lambda: self.fill(pool))
                return False
            if pid == 0:
                template(its, parent, pool.name, pool.source)
            self.own.add(pid)
            its.close()
            pool.control = mine
            self.watch(mine.fileno(), select.EPOLLIN, lambda event: self.heard_template(pool))
        return pool.loaded

    def heard_template(self, pool):
        message = pool.control.recv(4096)
        if message == b"L":
            pool.loaded = True
            self.fill(pool)
            return
        self.unwatch(pool.control.fileno())
        pool.control.close()
        pool.control, pool.loaded = None, False
        error = {"kind": "source", "message": message[1:].decode("utf-8", "replace") or "the template died"}
        while pool.waiting:
            call = pool.waiting.popleft()
            call.error = error
            self.finish(call)

    def heard(self, slot):
        """One message of a monitor or of its program."""
        try:
            data, fds, _, _ = socket.recv_fds(slot.sock, 4096, 5, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        kind = data[:1]
        if kind == b"X":
            self.has_ended(slot, REPORT.unpack(data[1:]))
        elif kind == b"R":
            self.is_ready(slot, int(data[1:]), fds)
        elif kind == b"":
            self.lose(slot)
        elif slot.call is None:
            pass                                 # of a program that is not a call yet: its end follows
        elif kind == b"S":
            self.send(STARTED, slot.call.number)
        elif kind == b"T":
            self.terminal(slot.call, fds[0])
        elif kind == b"C":
            self.control(slot.call, fds[0], fds[1])
        elif kind == b"E":
            slot.call.error = json.loads(data[1:])

    def is_ready(self, slot, pid, fds):
        pool = slot.pool
        if slot.pid == 0:
            pool.births -= 1
            self.own.add(pid)
        slot.pid, slot.fds, slot.since = pid, fds, time.monotonic()
        if pool.waiting:
            self.dispatch(pool.waiting.popleft(), slot)
        else:
            pool.ready.append(slot)
            if len(pool.ready) > pool.spare:
                self.after(IDLE, lambda: self.retire(pool))

    def has_ended(self, slot, report):
        call, slot.call = slot.call, None
        if slot.doomed:
            self.discard(slot)
        if call:
            call.report = report
            self.ended(call)
        else:
            self.drop_ready(slot)

    def retire(self, pool):
        if len(pool.ready) > pool.spare and time.monotonic() - pool.ready[0].since >= IDLE:
            self.discard(pool.ready.popleft())

    def discard(self, slot):
        """Ends a slot that runs nothing."""
        kill(slot.pid, signal.SIGTERM)
        self.lose(slot)

    def drop_ready(self, slot):
        if slot in slot.pool.ready:
            slot.pool.ready.remove(slot)
        for fd in slot.fds:
            os.close(fd)
        slot.fds = []

    def lose(self, slot):
        """A monitor is gone, or told to go. What a dead one leaves comes to us."""
        self.drop_ready(slot)
        self.unwatch(slot.sock.fileno())
        slot.sock.close()
        self.slots -= 1
        slot.pool.size -= 1
        self.own.discard(slot.pid)
        if slot.pid == 0:
            slot.pool.births -= 1
        for delay in (0.02, 0.2, 1.0):
            self.after(delay, self.sweep)
        call, slot.call = slot.call, None
        if call:
            call.reason = call.reason or "sandbox_lost"
            self.after(0.03, lambda: self.ended(call))
        self.after(0.05, lambda: self.fill(slot.pool))

    def sweep(self):
        """Reaps our dead children and kills programs that lost their monitor."""
        for _ in range(1000):
            try:
                pid = os.waitpid(-1, os.WNOHANG)[0]
            except ChildProcessError:
                return
            if pid == 0:
                lost = [p for p in children(os.getpid()) if self.is_program(p)]
                if not lost:
                    return
                for p in lost:
                    kill(p, signal.SIGKILL)
                time.sleep(0.001)

    def is_program(self, pid):
        """Nothing of ours but a program is ever anything else than uid 0."""
        if not ROOT:
            return pid not in self.own and not any(pool.births for pool in self.pools.values())
        try:
            with open("/proc/%d/status" % pid, "rb") as f:
                return int(f.read().partition(b"\nUid:")[2].split(None, 1)[0]) != 0
        except (OSError, ValueError, IndexError):
            return False

    # -- one call

    def dispatch(self, call, slot):
        head, slot.call, call.slot = call.head, call, slot
        call.shared = any(other.slot for other in self.calls.values() if other is not call)
        if call.shared:
            for other in self.calls.values():
                other.shared = True
            call.before = self.events.read()
        else:
            call.before = self.events.last
        self.request(slot, call.request)
        call.request = None
        call.began = time.monotonic_ns()
        fds, slot.fds = slot.fds, []
        self.connect(call, head, fds)
        if head["timeout"]:
            self.deadlines[call.number] = time.monotonic() + head["timeout"]
        self.fill(slot.pool)

    def request(self, slot, request):
        if len(request) <= INLINE:
            return told(slot.sock, request)
        fd = libc.memfd_create(b"request", 1)    # close on exec; not every Python has it in os
        with open(fd, "w+b") as f:
            f.write(request)
            f.seek(0)
            return told(slot.sock, b"M", [fd])

    def connect(self, call, head, fds):
        """Joins the pipes to the call; those it doesn't use are closed."""
        if head["tty"]:
            for fd in fds[:3]:
                os.close(fd)
        else:
            self.add_in(call, STDIN, fds[0])
            self.add_out(call, STDOUT, fds[1], *head["out"][0])
            self.add_out(call, STDERR, fds[2], *head["out"][1])
        if len(fds) > 3:
            self.control(call, fds[3], fds[4])

    def control(self, call, in_fd, out_fd):
        os.set_blocking(in_fd, False)
        os.set_blocking(out_fd, False)
        self.add_in(call, CTL_IN, in_fd)
        self.add_out(call, CTL_OUT, out_fd, -1 if call.head["control"] else 0, 0)

    def terminal(self, call, master):
        os.set_blocking(master, False)
        self.add_in(call, STDIN, fcntl.fcntl(master, fcntl.F_DUPFD_CLOEXEC, 3))
        self.add_out(call, STDOUT, master, *call.head["out"][0])

    def add_in(self, call, channel, fd):
        if channel in call.ins:
            call.ins[channel].fd = fd
            self.push(call.ins[channel])
        else:
            os.close(fd)

    def add_out(self, call, channel, fd, forward, tail):
        out = call.outs[channel] = Out(call, channel, fd, forward, tail)
        self.poll_out(out)

    def end(self, call, reason):
        """Has the call's tree killed; what is told of it comes with the report."""
        if call.number not in self.calls or call.reason or call.report:
            return
        call.reason = reason
        if call.slot:
            call.slot.doomed = True
            kill(call.slot.pid, signal.SIGTERM)
        else:
            self.pools[call.head["python"]].waiting.remove(call)
            self.finish(call)

    def ended(self, call):
        """The tree is gone: what its pipes hold is still to be passed on."""
        call.lasted = time.monotonic_ns() - call.began
        for channel in list(call.ins):
            self.close_in(call.ins[channel])
        outs = list(call.outs.values())
        for out in outs:
            out.rest = DRAIN + CHUNK
        for out in outs:
            self.poll_out(out)
        if not outs:
            self.finish(call)

    def finish(self, call):
        del self.calls[call.number]
        self.deadlines.pop(call.number, None)
        for channel, tail in call.tails:
            for at in range(0, len(tail), CHUNK):
                self.send(TAIL | channel, call.number, tail[at:at + CHUNK])
        self.send(EXIT, call.number, json.dumps(self.verdict(call)).encode())
        self.done = self.done or self.once

    def verdict(self, call):
        """How the call ended, as DESIGN's verdicts say."""
        status, user, system, rss, killed = call.report or (0, 0.0, 0.0, 0, False)
        result = {"status": "exited", "code": 0, "signal": 0, "ns": call.lasted, "out": call.totals[1:3], "user": user,
                  "system": system, "rss": rss << 10, "shared": call.shared, "notices": [], "error": call.error}
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            result.update(status="signaled", signal=number, code=128 + number)
        else:
            result["code"] = os.WEXITSTATUS(status)
        if call.reason:
            code = {"timed_out": 124, "sandbox_lost": -1, "pids_limit": 126}.get(call.reason, 137)
            result.update(status=call.reason, signal=0, code=code)
        if call.before is not None:
            self.blame(call, result, killed)
        return result

    def blame(self, call, result, killed):
        oom, pids = (now - then for now, then in zip(self.events.read(), call.before))
        failed = result["code"] != 0
        if oom:
            killed = killed or result["code"] == 137 or failed and not call.shared
            self.limit_hit(call, result, "oom_killed", failed and killed, "the memory limit was reached and %d processes were killed for it" % oom)
        if pids:
            self.limit_hit(call, result, "pids_limit", failed, "the process limit was reached %d times" % pids)
        if signal.SIGXFSZ in (result["signal"], result["code"] - 128):
            self.limit_hit(call, result, "disk_limit", True, "a file reached the size limit")

    def limit_hit(self, call, result, status, decides, notice):
        if decides and result["status"] in ("exited", "signaled"):
            result["status"] = status
        else:
            result["notices"].append(notice)

    # -- streams of a call

    def poll_out(self, out):
        """Goes on with a stream: by epoll while its program lives, else to its end at once."""
        if out.rest is not None:
            while out.fd >= 0 and self.pump(out):
                pass
        elif out.fd >= 0 and not out.polled:
            out.polled = True
            self.watch(out.fd, select.EPOLLIN, lambda event: self.pump(out))

    def hold_out(self, out):
        if out.polled:
            out.polled = False
            self.unwatch(out.fd)
        return False

    def pump(self, out):
        """Moves one piece; false when there is nothing more to move now."""
        if self.out_size > BACKLOG and out.forward:
            self.stalled.add(out)
            return self.hold_out(out)
        try:
            n = self.throw_away(out) if out.forward == 0 else self.pass_on(out)
        except BlockingIOError:
            return out.rest is not None and self.close_out(out)
        except OSError:                          # a terminal's way to say end of file
            n = 0
        if n is None:
            return self.hold_out(out)
        out.total += n
        if out.rest is not None:
            out.rest -= n
        if n == 0 or out.rest is not None and out.rest <= 0:
            return self.close_out(out)
        if n >= CHUNK and not out.grown:
            self.grow(out)
        return True

    def pass_on(self, out):
        room = min(CHUNK, out.window) if out.forward < 0 else min(CHUNK, out.window, out.forward)
        if room <= 0:
            return None
        data = os.read(out.fd, room)
        if data:
            out.window -= len(data)
            if out.forward > 0:
                out.forward -= len(data)
            self.send(DATA | out.channel, out.call.number, data)
        return len(data)

    def throw_away(self, out):
        if self.drain is None:
            self.drain = memoryview(bytearray(DRAIN))
        n = os.readv(out.fd, [self.drain])
        if n >= out.keep:
            out.tail = bytes(self.drain[n - out.keep:n])
        else:
            out.tail = (out.tail + bytes(self.drain[:n]))[-out.keep:]
        return n

    def grow(self, out):
        out.grown = True
        try:
            fcntl.fcntl(out.fd, 1031, DRAIN)     # F_SETPIPE_SZ
        except OSError:
            pass

    def close_out(self, out):
        self.hold_out(out)
        os.close(out.fd)
        out.fd = -1
        call = out.call
        del call.outs[out.channel]
        call.totals[out.channel] = out.total
        if out.tail:
            call.tails.append((out.channel, out.tail))
        if out.rest is not None and not call.outs:
            self.finish(call)
        return False

    def feed(self, stream, data):
        if data:
            stream.queue.append(data)
            stream.queued += len(data)
            if stream.queued > WINDOW:
                raise Lost("more input than granted")
        else:
            stream.eof = True
        self.push(stream)

    def push(self, stream, event=0):
        """Writes what is queued; the end of file follows the last byte."""
        while stream.queue and stream.fd >= 0:
            try:
                n = os.write(stream.fd, stream.queue[0])
            except BlockingIOError:
                if not stream.polled:
                    stream.polled = True
                    self.watch(stream.fd, select.EPOLLOUT, lambda event: self.push(stream))
                return
            except OSError:                      # nobody reads it any more
                self.close_in(stream)
                break
            self.took(stream, n)
            rest = stream.queue.popleft()[n:]
            if rest:
                stream.queue.appendleft(rest)
        if stream.closed:
            self.took(stream, stream.queued)
            stream.queue.clear()
        elif stream.polled:
            stream.polled = False
            self.unwatch(stream.fd)
        if stream.eof and not stream.queue and stream.fd >= 0:
            self.finish_in(stream)

    def took(self, stream, n):
        stream.queued -= n
        stream.owed += n
        if stream.owed >= WINDOW // 4 or stream.closed:
            self.send(CREDIT | stream.channel, stream.call.number, struct.pack(">I", stream.owed))
            stream.owed = 0

    def finish_in(self, stream):
        if stream.channel == STDIN and stream.call.head["tty"]:
            stream.eof = False
            stream.queue.append(b"\4")
            stream.queued += 1
            stream.owed -= 1
            self.push(stream)
        else:
            self.close_in(stream)

    def close_in(self, stream):
        if stream.polled:
            stream.polled = False
            self.unwatch(stream.fd)
        if stream.fd >= 0:
            os.close(stream.fd)
        stream.fd, stream.closed = -1, True

    # -- the end

    def shut(self):
        """Ends every program: each monitor kills its tree and goes."""
        self.done = True
        for pid in self.own:
            kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            self.sweep()
            if not children(os.getpid()):
                return
            time.sleep(0.005)
        for pid in children(os.getpid()):
            kill(pid, signal.SIGKILL)
        self.sweep()


def serve(options):
    global WORKSPACE
    WORKSPACE = os.path.realpath(options["workspace"])
    gaps = give_up_rights()
    agent = Agent(options)
    try:
        agent.serve(gaps)
    except (Lost, UnicodeDecodeError, json.JSONDecodeError):
        pass                                     # the host is gone or speaks another language
    except BaseException:
        import traceback
        traceback.print_exc()                    # for the log of whoever holds our stderr
    finally:
        agent.shut()
        os._exit(0)


serve(json.loads(OPTIONS))  # noqa: F821, set by the bootstrap
