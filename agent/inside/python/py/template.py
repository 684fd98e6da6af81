"""Python programs: a template executes a trusted source once; monitors are
forked from it, and each forks the next call's process in advance, which gives
up uid 0 when its request comes."""
import _signal
import gc
import os
import sys

from . import request as launch
from .kernel import PR_SET_PDEATHSIG, ROOT, USER, adopt_socket, close_all, give_up_rights, hear, kill, prctl, told, user_pipes
from .monitor import become_monitor, keep_only, see_to_end
from .request import ANY_DIR, NOTIFY, REQUEST, STDIN

REST = 0.0005                # seconds a monitor leaves the processor to the report
HIGHEST = 64                 # the descriptors of a fresh monitor's child are below it
REHEARSAL = REQUEST.pack(0, 0.0, 0, 0, 0, 0, 0, 0, 1, b"") + b"\0x\0"
STREAMS = (True, False, False, True, False)      # stdin, the outputs, control in and out


class Main:
    """The functions of a source: main, and optionally warm, which runs the same code with
    nothing to do."""

    def __init__(self, module):
        self.main = module.main
        self.warm = getattr(module, "warm", lambda inp, out: None)


def template(name, source):
    """Serves descriptor 3. The monitors become the agent's children: the fork between
    them ends."""
    parent = os.getppid()
    try:
        prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
        give_up_rights()
        control = adopt_socket(keep_only(adopt_socket(3)))
        if sys.version_info < (3, 9):
            told(control, b"V")
            return
        try:
            main = load(name, source)
        except BaseException as e:
            told(control, b"E" + ("%s: %s" % (type(e).__name__, e)).encode()[:4000])
            return
        told(control, b"L")
        while True:
            _, fds = hear(control, 1)
            if not fds:
                return
            fork_monitor(parent, main, fds[0])
    finally:
        os._exit(0)


def fork_monitor(parent, main, fd):
    sock = adopt_socket(fd)
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
    import atexit  # noqa: F401, for end_threads
    import io
    import site
    import traceback  # noqa: F401, for run_main
    import types
    site.main()
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), "utf-8", "surrogateescape")
    sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), "utf-8", "surrogateescape")
    sys.stderr = io.TextIOWrapper(open(2, "wb", closefd=False), "utf-8", "backslashreplace", line_buffering=True)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    for ours in [m for m in sys.modules if m.partition(".")[0] == __package__]:
        del sys.modules[ours]
    sys.modules["__main__"] = types.ModuleType("__main__")
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, "<%s>" % name, "exec"), module.__dict__)
    gc.collect()
    gc.freeze()
    return Main(module)


def monitor(sock, parent, main):
    try:
        sock = become_monitor(sock, parent)
        while watch_one(sock, main):
            pass
    finally:
        os._exit(0)


def watch_one(sock, main):
    """Prepares one program, runs it, ends its process tree and reports."""
    try:
        ours, theirs = user_pipes(STREAMS)
        prctl(PR_SET_PDEATHSIG, _signal.SIGTERM)     # a change of users resets it
        pid = os.fork()
    except OSError as e:
        return told(sock, b"F%d" % e.errno) and _signal.sigtimedwait([_signal.SIGTERM], 0.05) is None
    if pid == 0:
        program(sock, theirs, main)
    outputs = [theirs.pop(i) for i in (4, 2, 1)]
    close_all(theirs)
    if not told(sock, b"R%d" % os.getpid(), ours):
        kill(pid, _signal.SIGKILL)
    close_all(ours)
    report, asked = see_to_end(pid)
    heard = told(sock, b"X" + report)
    close_all(outputs)                           # not before, see Start in launch
    if not heard or asked:
        return False
    return _signal.sigtimedwait([_signal.SIGTERM], REST) is None


def program(sock, fds, main):
    """Runs a program's process. Never returns."""
    code = 127
    try:
        parent = os.getppid()
        prepare(fds)
        rehearse(main.warm)
        payload = launch.receive(sock)
        if not payload:
            os._exit(0)
        drop_with(parent, USER)
        request = launch.Request(payload)
        launch.enter(request.dir, request.flags & ANY_DIR)
        if not request.flags & STDIN:
            null = os.open(launch.NULL, os.O_RDONLY)
            os.dup2(null, 0)
            os.close(null)
        if request.flags & NOTIFY:
            told(sock, b"S%d" % os.getpid())
        sock.close()
        code = call(main.main, request)
    except launch.StartError as e:
        told(sock, b"E" + "\0".join(e.args).encode())
    except BaseException as e:
        told(sock, b"Einternal\0" + type(e).__name__.encode())
    finally:
        os._exit(code)


def prepare(fds):
    """Does everything that is possible before the request is known. The real uid is 0 until
    then: programs can neither signal nor trace this process."""
    os.setsid()
    launch.lower_rank()
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    os.closerange(5, HIGHEST)
    for number in (_signal.SIGXFSZ, _signal.SIGINT):
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, [])


def rehearse(warm):
    """Runs the code from request to program with an empty request, so that pages shared by
    the fork are copied now and not during the call."""
    if ROOT:
        os.setresuid(0, 0, 0)
    drop_with(os.getppid(), 0)
    request = launch.Request(REHEARSAL)
    try:
        launch.enter(request.dir)
    except launch.StartError:
        pass
    set_environment(request.environment())
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    gc.enable()
    gc.disable()
    with open(launch.NULL, "rb") as inp, open(launch.NULL, "wb", 0) as out:
        run_main(lambda: warm(inp, out))


def drop_with(parent, user):
    if ROOT:
        os.setresuid(user, user, user)
    prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def call(main, request):
    set_environment(request.environment())
    sys.argv = [request.argv[0].decode()]
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    gc.enable()
    return run_main(lambda: main(open(3, "rb"), open(4, "wb", 0)))


def set_environment(env):
    if dict(os.environb) != env:
        os.environb.clear()
        os.environb.update(env)


def run_main(main):
    """Does the work of the interpreter around a main program."""
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
    sys.modules["atexit"]._run_exitfuncs()
