"""Plain programs: a launcher is the monitor of one program after the other.

It starts each by posix_spawn, which copies neither memory nor page tables of
this process. For that moment it is the programs' user itself, with uid 0 as its
saved id only, so the program has no way back: exec makes the saved id the
effective one. A launcher that a program kills in that moment is a program that
was killed: the agent ends what it leaves. It can't be traced even then.
"""
import _signal
import ctypes
import errno
import fcntl
import os
import struct
import termios
import time

from .kernel import GROUP, ROOT, USER, close_all, hear, libc, open_pipes, told, user_pipes, write_file
from .monitor import become_monitor, see_to_end
from .wire import NOTIFY, REPORT, REQUEST, WITH_CONTROL, WITH_TTY

INLINE = 64 << 10            # larger requests come in a memfd
PATIENCE = 3.0               # seconds a program waits for a process to be had
NULL = "/dev/null"
WORKSPACE = ""               # set by main
SHELL_PATH = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BASE_ENV = {b"HOME": b"/tmp/home", b"PATH": SHELL_PATH, b"LANG": b"C.UTF-8", b"PYTHONDONTWRITEBYTECODE": b"1"}
STREAMS = (True, False, False)                   # stdin is read
TIOCGPTN = 0x80045430                            # a terminal's number
SETSIGDEF, SETSIGMASK, SETSID = 0x04, 0x08, 0x80


class StartError(Exception):
    """The program can't be started as asked: kind is for the host to map."""


class Request:
    """A run frame's payload, as the process that becomes the program needs it."""

    def __init__(self, payload):
        fixed = REQUEST.unpack_from(payload)
        self.flags, self.size = fixed[0], fixed[2:4]
        words = payload[REQUEST.size:].split(b"\0")
        end = 1 + fixed[8]
        self.dir, self.argv, self.pairs = words[0], words[1:end], words[end:-1]

    def environment(self):
        env = dict(BASE_ENV)
        if self.flags & WITH_TTY:
            env[b"TERM"] = b"xterm-256color"
        for pair in self.pairs:
            key, _, value = pair.partition(b"=")
            env[key] = value
        return env


def receive(sock):
    data, fds = hear(sock, INLINE + 1)
    if not fds:
        return data
    with open(fds[0], "rb") as f:
        return f.read()


def launcher(sock, parent):
    try:
        sock = become_monitor(sock, parent)
        lower_rank()
        rank = rank_now()
        ours, theirs = user_pipes(STREAMS)
        told(sock, b"R%d" % os.getpid(), ours)
        close_all(ours)
        while theirs:
            start = Start(sock, theirs)
            payload = receive(sock)
            if not payload:
                break
            theirs = launch(sock, payload, start, rank)
    finally:
        os._exit(0)


def lower_rank():
    """Programs are last for the processor and first for the out-of-memory
    killer; that is inherited, and can't be had back, so it is ours as well."""
    os.nice(10)
    write_file("/proc/self/oom_score_adj", b"1000")
    if ROOT:
        os.setresgid(GROUP, GROUP, GROUP)


def rank_now():
    """What another program could have changed in the moment of a start."""
    return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)


def launch(sock, payload, start, rank):
    """Runs one program and reports. Gives the next one's ends of the pipes, none
    when this launcher is not to be used again."""
    pid, ours, after = 0, [], []
    if ROOT:
        os.setresuid(USER, USER, 0)
    try:
        pid = start.run(Request(payload))
        ours, after = open_pipes(STREAMS)
    except StartError as e:
        told(sock, b"E" + "\0".join(e.args).encode())
    except Exception as e:
        told(sock, b"Einternal\0" + type(e).__name__.encode())
    finally:
        if ROOT:
            os.setresuid(0, 0, 0)
        start.close()
    asked, report = False, REPORT.pack(start.code << 8, 0.0, 0.0, 0, False)
    if pid:
        fit = rank_now() == rank
        report, asked = see_to_end(pid)
        if asked or not fit:
            close_all(ours + after)
            ours, after = [], []
    told(sock, b"X" + report, ours)
    close_all(ours + start.outputs)
    return after


class Start:
    """One start of a program, made ready before its request is known. What is opened
    for it is closed again; its outputs after its report only: the agent would wake
    up for the end of each while the kernel is still taking the program apart."""
    attributes = environ = None                  # made once: of all, and of those that add no variable

    def __init__(self, sock, theirs):
        self.sock, self.fds, self.outputs, self.code = sock, theirs[:1], theirs[1:], 127
        self.pid = ctypes.c_int()
        self.actions = ctypes.create_string_buffer(256)
        libc.posix_spawn_file_actions_init(self.actions)
        for target, fd in enumerate(theirs):
            self.dup(fd, target)
        if Start.attributes is None:
            Start.attributes, Start.environ = attributes(), environ(BASE_ENV)

    def close(self):
        libc.posix_spawn_file_actions_destroy(self.actions)
        close_all(self.fds)

    def run(self, request):
        """Gives the program's pid, 0 where it can't be executed."""
        enter(request.dir)
        make_home()
        if request.flags & WITH_TTY:
            self.terminal(request.size)
        if request.flags & WITH_CONTROL:
            self.control()
        if request.flags & NOTIFY:
            told(self.sock, b"S")
        if request.pairs or request.flags & WITH_TTY:
            env = request.environment()
            return self.execute(request.argv, env.get(b"PATH", SHELL_PATH), environ(env))
        return self.execute(request.argv, SHELL_PATH, Start.environ)

    def dup(self, fd, target):
        libc.posix_spawn_file_actions_adddup2(self.actions, fd, target)

    def terminal(self, size):
        """The program opens it as the first of its session: so it controls it."""
        master, slave = os.openpty()
        set_size(master, size)
        number, = struct.unpack("I", fcntl.ioctl(master, TIOCGPTN, b"    "))
        libc.posix_spawn_file_actions_addopen(self.actions, 0, b"/dev/pts/%d" % number, os.O_RDWR, 0)
        self.dup(0, 1)
        self.dup(0, 2)
        told(self.sock, b"T", [master])
        self.fds += [master, slave]

    def control(self):
        ours, theirs = open_pipes((True, False))
        for target, fd in enumerate(theirs, 3):
            self.dup(fd, target)
        told(self.sock, b"C", ours)
        self.fds += ours + theirs

    def execute(self, argv, search, env):
        """Starts the program, or says on stderr why not, as a shell does."""
        name, failure, words = argv[0], errno.ENOENT, strings(argv)
        for path in candidates(name, search):
            pid, error = self.spawn(path, words, env)
            if pid:
                return pid
            if error not in (errno.ENOENT, errno.ENOTDIR):
                failure = error
        missing = failure == errno.ENOENT
        text = "command not found" if missing and b"/" not in name else os.strerror(failure).lower()
        os.write(self.outputs[1], (name or b"''") + b": " + text.encode() + b"\n")
        self.code = 127 if missing else 126
        return 0

    def spawn(self, path, argv, env):
        deadline = None
        while True:
            error = libc.posix_spawn(ctypes.byref(self.pid), path, self.actions, self.attributes, argv, env)
            if error not in (errno.EAGAIN, errno.ENOMEM):
                return (0, error) if error else (self.pid.value, 0)
            deadline = deadline or time.monotonic() + PATIENCE
            if time.monotonic() > deadline:
                told(self.sock, b"P")
                return 0, error
            if _signal.sigtimedwait([_signal.SIGTERM], 0.05):
                os._exit(0)


def environ(env):
    return strings([b"%b=%b" % pair for pair in env.items()])


def strings(items):
    return (ctypes.c_char_p * (len(items) + 1))(*items)


def attributes():
    """A session of its own, no signal blocked, and those that Python ignores as usual."""
    attr, signals = ctypes.create_string_buffer(1024), ctypes.create_string_buffer(128)
    libc.posix_spawnattr_init(attr)
    libc.posix_spawnattr_setflags(attr, ctypes.c_short(SETSIGDEF | SETSIGMASK | SETSID))
    libc.sigemptyset(signals)
    libc.posix_spawnattr_setsigmask(attr, signals)
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGINT):
        libc.sigaddset(signals, number)
    libc.posix_spawnattr_setsigdefault(attr, signals)
    return attr


def candidates(name, search):
    if b"/" in name or not name:
        return [name] if name else []
    paths = [d + b"/" + name for d in search.split(b":") if d]
    return [path for path in paths if os.path.exists(path)]


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


def make_home():
    """It lies in a tmpfs that programs may empty. To look first is quicker."""
    if os.path.exists(BASE_ENV[b"HOME"]):
        return
    try:
        os.mkdir(BASE_ENV[b"HOME"], 0o700)
    except OSError:
        pass


def set_size(fd, size):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
