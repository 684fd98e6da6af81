"""Takes all that a program can get of one of the kernel's counters, says how much,
and holds it until its input ends: ledger.py take COUNTER. Or tries that there is
still some: ledger.py try COUNTER, which prints ok, or what stands against it."""
import array, ctypes, errno, fcntl, os, resource, select, signal, socket, sys

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
NR = {"x86_64": {"inotify_init1": 294, "inotify_add_watch": 254, "timer_create": 222, "io_setup": 206, "mq_open": 240, "mq_unlink": 241, "rt_sigqueueinfo": 129},
      "aarch64": {"inotify_init1": 26, "inotify_add_watch": 27, "timer_create": 107, "io_setup": 0, "mq_open": 180, "mq_unlink": 181, "rt_sigqueueinfo": 138}}[os.uname().machine]
F_SETPIPE_SZ = 1031
PIPE = 1 << 20
HELD = []                    # what must not be closed


def call(name, *args):
    got = libc.syscall(ctypes.c_long(NR[name]), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got


def inotify():
    HELD.append(call("inotify_init1", 0))


WATCHED = []


def watch():
    """Each file once in each instance."""
    if not WATCHED:
        WATCHED.append((call("inotify_init1", 0), iter(range(4000))))
    fd, numbers = WATCHED[-1]
    path = "/tmp/watched%d" % next(numbers)
    open(path, "w").close()
    call("inotify_add_watch", fd, ctypes.c_char_p(path.encode()), 2)


def watches():
    try:
        watch()
    except StopIteration:
        WATCHED.append((call("inotify_init1", 0), iter(range(4000))))
        watch()


def signals():
    info = (ctypes.c_int * 32)(0, 0, -1)
    signal.pthread_sigmask(signal.SIG_BLOCK, range(40, 42))
    call("rt_sigqueueinfo", os.getpid(), 40, info)


def timers():
    event = (ctypes.c_int * 16)(0, 0, 40, 0)
    call("timer_create", 1, event, ctypes.byref(ctypes.c_int()))


def aio():
    call("io_setup", 64, ctypes.byref(ctypes.c_ulong()))


def terminals():
    HELD.extend(os.openpty())


PAIR = []


def descriptors():
    """Sends descriptors that nobody receives."""
    if not PAIR:
        PAIR.extend(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        PAIR[0].setblocking(False)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 200))]
    try:
        PAIR[0].sendmsg([b"x"], rights)
    except BlockingIOError:                      # this queue is full
        HELD.extend(PAIR)
        PAIR.clear()
        descriptors()


QUEUES = []


def queues():
    name = b"wisbox-%d-%d" % (os.getpid(), len(QUEUES))
    fd = call("mq_open", ctypes.c_char_p(name), os.O_CREAT | os.O_RDWR, 0o600, None)
    call("mq_unlink", ctypes.c_char_p(name))     # it goes with its descriptor
    QUEUES.append(fd)
    HELD.append(fd)


def pipes():
    r, w = os.pipe()
    HELD.extend((r, w))
    fcntl.fcntl(w, F_SETPIPE_SZ, PIPE)
    if fcntl.fcntl(w, F_SETPIPE_SZ + 1) < PIPE:
        raise OSError(errno.EPERM, "a small pipe")


def files():
    HELD.append(os.open("/dev/null", os.O_RDONLY))


SETS, FDS, LEFT = [], [], []


def polled():
    """The same files in one set after the other."""
    if not FDS:
        FDS.extend(os.eventfd(0) for _ in range(500))
    if not LEFT:
        SETS.append(select.epoll())
        LEFT.extend(FDS)
    SETS[-1].register(LEFT.pop(), select.EPOLLIN)


def locks():
    name = "/tmp/locked%d" % os.getpid()
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    os.unlink(name)
    HELD.append(fd)
    for at in range(0, 2000, 2):
        fcntl.lockf(fd, fcntl.LOCK_EX, 1, at)


def locked():
    """Memory that can't be swapped."""
    libc.mmap.restype = ctypes.c_void_p
    at = libc.mmap(None, ctypes.c_size_t(65536), 3, 0x22, -1, ctypes.c_long(0))
    if libc.mlock(ctypes.c_void_p(at), ctypes.c_size_t(65536)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


COUNTERS = {f.__name__: f for f in (inotify, watches, signals, timers, aio, terminals, descriptors, queues, pipes, files, polled, locks, locked)}
# a program's own limits end it before the counter's: then its children go on
PROCESSES = {"signals": 4, "timers": 4, "descriptors": 8, "pipes": 8, "files": 100, "locks": 20, "inotify": 4, "queues": 4, "terminals": 4, "locked": 4}

ENOUGH = {"locks": 1, "polled": 100000}          # of what nothing but memory bounds


def take(one):
    """Takes what there is, in this process; gives how much and why no more."""
    n, why = 0, "all"
    try:
        while n < ENOUGH.get(one.__name__, 1 << 20):
            one()
            n += 1
    except OSError as e:
        why = errno.errorcode.get(e.errno, str(e.errno))
    return n, why


def main():
    verb, counter = sys.argv[1:]
    one = COUNTERS[counter]
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if verb == "try":
        try:
            one()
            print("ok")
        except OSError as e:
            print(errno.errorcode.get(e.errno, str(e.errno)))
        return
    total, reasons = 0, set()
    for _ in range(PROCESSES.get(counter, 1)):
        r, w = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            reasons.add("fork")
            break
        if pid == 0:
            os.close(r)
            n, why = take(one)
            os.write(w, b"%d %s" % (n, why.encode()))
            os.close(w)
            signal.pause()
        os.close(w)
        n, why = os.read(r, 100).decode().split()
        os.close(r)
        total += int(n)
        reasons.add(why)
    print(total, ",".join(sorted(reasons)), flush=True)
    sys.stdin.read()


main()
