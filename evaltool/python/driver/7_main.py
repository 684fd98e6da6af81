# The program itself: it reads requests from a private channel, evaluates them
# and answers each with one message. Only main has effects; the host may have executed everything above it long before,
# with more rights.
#
# A message is a big-endian uint32 and that many bytes of JSON; a request is
# followed by the contents of its reads, in their order.

import atexit
import builtins
import fcntl
import functools
import gc
import inspect
import linecache
import signal
import site
import struct
import traceback
import warnings
import _thread
from time import monotonic, sleep

try:
    import _ctypes  # first: it may be missing, and ctypes is large
    import ctypes
except Exception:
    ctypes = None

SELF = inspect.currentframe().f_code.co_filename
MESSAGE_BYTES = 32 << 20
SOURCES_KEPT = 64
THREADS_WAIT = 2  # seconds


class Channel:
    """The two private descriptors, at numbers where code doesn't expect them."""

    def __init__(self, inp, out):
        self.inp, self.out = hide(inp), hide(out)

    def receive(self):
        """Returns a request and the texts of its reads; None and no texts at the end."""
        size = 0
        while size == 0:  # an empty message is a reply for which nobody waits
            size = self.exactly(4, optional=True)
            if size is None:
                return None, {}
            size = struct.unpack(">I", size)[0]
        request = json.loads(self.exactly(size))
        return request, {read["path"]: self.exactly(read["size"]).decode() for read in request["reads"]}

    def exactly(self, count, optional=False):
        data = bytearray(count)
        view, got = memoryview(data), 0
        while got < count:
            n = os.readv(self.inp, [view[got:]])
            if n == 0:
                if optional and got == 0:
                    return None
                raise EOFError("the channel ended within a message")
            got += n
        return bytes(data)

    def send(self, message):
        data = framed(message)
        if len(data) > MESSAGE_BYTES:
            data = framed(bare(message["id"], message.get("traceback") or "the result is too large to be sent\n"))
        self.write(data)

    def write(self, data):
        left = memoryview(data)
        while left:
            left = left[os.write(self.out, left):]

    def close(self):
        os.close(self.inp)
        os.close(self.out)


def framed(message):
    data = json.dumps(message).encode()
    return struct.pack(">I", len(data)) + data


def hide(file):
    """Returns a close-on-exec duplicate well above the descriptors of programs."""
    fd = file.fileno()
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 512)
    except OSError:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)
    file.close()
    return high


def bare(ident, problem):
    return {"id": ident, "status": "exception", "traceback": problem}


class Plain:
    """Ordinary Python in its own module __main__."""

    formatter = None  # of displays, if it isn't ours
    machinery = (SELF,)  # prefixes of file names whose frames tracebacks omit
    elsewhere = False  # whether code may be in other files

    def __init__(self, workspace):
        self.module = types.ModuleType("__main__")
        self.names = self.module.__dict__
        self.display = None  # the session's, of a call
        self.names.update(workspace.helpers(), display=displayer(self), __builtins__=builtins)
        self.hidden = dict(self.names)
        self.loop = self.last = None
        self.filename = "<code>"
        self.notebook = Notebook(self)
        sys.modules["__main__"] = self.module
        sys.meta_path[:] = [PlotFinder(self), *(f for f in sys.meta_path if type(f) is not PlotFinder)]

    def run(self, code, filename):
        remember_source(code, filename)
        self.filename = filename
        return self.again(code)

    def again(self, code):
        """Runs code, e.g. of a magic, as a part of the current evaluation."""
        filename = self.filename
        tree, more = parsed(code, filename)
        if more:
            self.names[HOOK] = self.notebook
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        if tree.body:
            self.execute(compiled(tree, filename, "exec"))
        if last is None:
            return None
        return self.execute(compiled(ast.Expression(last.value), filename, "eval"))

    def execute(self, program):
        value = eval(program, self.names)
        if not program.co_flags & inspect.CO_COROUTINE:
            return value
        loop = self.event_loop()
        if loop.is_running():
            value.close()
            raise UsageError("await within %time does not work in code that awaits by itself; leave %time out")
        return loop.run_until_complete(value)

    def event_loop(self):
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        return self.loop

    def keep(self, value):
        """Makes the last value available as _, unless the code has its own name _."""
        if self.names.get("_", self.last) is self.last:
            self.names["_"] = self.last = value

    def visible(self):
        return self.names

    def explain(self, problem, code):
        report = traceback.TracebackException(type(problem), problem, problem.__traceback__, limit=-1000)
        trim(report, self, set())
        return "".join(report.format())


def compiled(tree, filename, mode):
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return compile(tree, filename, mode, flags=flags, dont_inherit=True)


def remember_source(code, filename):
    """Lets tracebacks and inspect show the user's own lines."""
    lines = [line + "\n" for line in code.split("\n")]
    linecache.cache[filename] = (len(code), None, lines, filename)
    ours = [name for name in linecache.cache if name.startswith("<code")]
    for old in ours[:-SOURCES_KEPT]:
        del linecache.cache[old]


def trim(report, space, seen):
    """Reduces a traceback to the frames that the user wrote or called: it drops the frames
    of the machinery and those above the user's first line."""
    if report is None or id(report) in seen:
        return
    seen.add(id(report))
    frames = [f for f in report.stack or () if not f.filename.startswith(space.machinery)]
    own = [i for i, f in enumerate(frames) if f.filename.startswith("<code")]
    if own:
        report.stack[:] = frames[own[0]:]
    elif frames and space.elsewhere:
        report.stack[:] = frames
    else:  # the code did not even compile
        report.stack = None
    for inner in (report.__cause__, report.__context__, *(getattr(report, "exceptions", None) or ())):
        trim(inner, space, seen)


def unawaited(coroutine):
    """Python names the code that dropped the coroutine. If that is the driver, at the end of
    the code, only the name of the function helps the user."""
    frame, code = inspect.currentframe().f_back, coroutine.cr_code
    where = code.co_filename, code.co_firstlineno
    if frame and frame.f_code.co_filename != SELF:
        where = frame.f_code.co_filename, frame.f_lineno
    warnings.warn_explicit(f"coroutine '{coroutine.__qualname__}' was never awaited", RuntimeWarning, *where)


class Session:
    """One namespace and the state for repeated evaluations in it."""

    def __init__(self, channel, kind, root):
        self.channel = channel
        self.workspace = Workspace(root)
        self.space = kind(self.workspace)
        self.pid = os.getpid()
        self.interruptible = self.interrupted = False
        self.interrupts = 0  # total number received
        self.telling = self.late = False  # an interrupt must not cut a message
        self.listening = None  # the ID of the evaluation whose events the host reads
        self.turn = _thread.allocate_lock()
        self.main = _thread.get_ident()
        self.count = 0
        signal.signal(signal.SIGINT, self.interrupt)

    def interrupt(self, number, frame):
        self.interrupts += 1
        if self.interruptible:
            self.interrupted = True
            if self.telling:
                self.late = True
                return
            raise KeyboardInterrupt

    def await_interrupts(self, sent):
        """Waits for interrupts of earlier evaluations, which must not end this one. Two that
        arrive together count as one, so it waits at most 0.2 s."""
        for _ in range(100):
            if self.interrupts >= sent:
                break
            sleep(0.002)
        self.interrupts = sent  # the code's own don't count as the host's

    def teller(self, ident):
        """Sends events of this evaluation to the host while it runs, from any thread. A
        forked child sends nothing. The host replies only to a limited number of events."""
        left = DISPLAY_ITEMS

        def tell(**event):
            nonlocal left
            if os.getpid() != self.pid:
                return
            data = framed({"id": ident, **event})
            if len(data) > MESSAGE_BYTES:
                return
            main = _thread.get_ident() == self.main
            if main:
                self.telling = True
            try:
                with self.turn:
                    if self.listening == ident and left > 0:
                        left -= 1
                        self.channel.write(data)
                        self.channel.exactly(4)  # the host has received it
            finally:
                if main:
                    self.telling = False
            if main and self.late:
                self.late = False
                raise KeyboardInterrupt

        return tell

    def evaluate(self, request, reads):
        """Sends exactly one answer for any code."""
        answer = {"id": request["id"], "status": "exited"}
        self.workspace.queue.clear()
        self.display = self.space.display = Display(self.space.formatter)
        self.interrupted = self.late = False
        self.given = reads
        signal.signal(signal.SIGINT, self.interrupt)
        self.await_interrupts(request.get("interrupts", 0))
        if request.get("feed"):
            self.feed(answer["id"])
        before = with_variables(request.get("env"))
        try:
            self.interruptible = True
            self.work(request, reads, answer)
            self.interruptible = False
        except BaseException as problem:
            self.fail(request, answer, problem)
            if isinstance(problem, KeyboardInterrupt) and self.interrupted:
                answer["status"] = "interrupted"
        finally:
            self.interruptible = False
            with_variables(before)
        answer["count"] = self.count
        if self.listening:
            with self.turn:  # events of threads are too late from now on
                self.listening = None
        return answer

    def feed(self, ident):
        whole_prints()
        tell = self.teller(ident)
        self.listening = ident
        self.display.tell = lambda result: tell(shown=result)

    def work(self, request, reads, answer):
        names = self.space.names
        names.update({name: json.loads(text) for name, text in request["globals"].items()})
        self.given = {"reads": dict(reads), **reads}
        names.update(self.given)
        self.count += 1
        filename = "<code>" if self.count == 1 else f"<code {self.count}>"
        try:
            value = self.space.run(request["code"], filename)
        except SystemExit as leaving:
            value = self.leave(leaving)
        self.same_process()
        self.collect(request, value, answer)
        if value is not None and request.get("kept", True):
            self.space.keep(value)

    def leave(self, leaving):
        """Treats sys.exit() and sys.exit(0) as success, anything else as a failure."""
        if leaving.code in (None, 0):
            return None
        raise leaving

    def same_process(self):
        """Ends a child that the code forked at the end of the code, without an answer."""
        if os.getpid() != self.pid:
            flush()
            os._exit(0)

    def collect(self, request, value, answer):
        if value is not None:
            answer["value"] = self.display.value(value)
        self.display.figures()
        answer["globals"], answer["globals_dropped"], answer["dropped_names"] = self.globals()
        answer["fields"], answer["faults"] = self.fields(request["fields"])
        answer["writes"] = self.workspace.queued()
        answer.update(self.display.answer())

    def globals(self):
        return global_texts(self.space.visible(), {**self.space.hidden, **self.given})

    def fields(self, wanted):
        """Returns the texts of fields of format strings, and the errors of others. A field whose
        global is missing is in neither."""
        texts, faults = {}, {}
        for field in wanted:
            try:
                text = ("{" + field + "}").format_map(Names(self.space.names))
                texts[field] = text[: WRITE_CHARS + 1]
                texts[field].encode()  # a lone surrogate can't be stored
            except MissingName:
                pass
            except RAISED as problem:
                texts.pop(field, None)
                faults[field] = f"{type(problem).__name__}: {text_of(problem)}"
        return texts, faults

    def fail(self, request, answer, problem):
        self.same_process()
        ident = answer["id"]
        answer.clear()
        answer.update(bare(ident, ""))
        if request.get("feed"):
            answer["raised"] = {"name": cut(type(problem).__name__), "value": text_of(problem)}
        try:
            answer["traceback"] = self.explained(request, problem)
        except BaseException as second:
            answer["traceback"] = f"{type(problem).__name__} (its text raised {type(second).__name__})\n"
        self.leave_behind(request, answer)

    def leave_behind(self, request, answer):
        """Returns the globals and writes up to the failure of the code, to report them. An
        interrupted call has no time left for the methods of its values."""
        answer["writes"] = self.workspace.queued()
        answer.update(self.display.answer())
        if self.interrupted:
            return
        try:
            answer["globals"], answer["globals_dropped"], answer["dropped_names"] = self.globals()
            answer["fields"], answer["faults"] = self.fields(request["fields"])
        except BaseException:  # raised by a repr: keep the results so far
            pass

    def explained(self, request, problem):
        if isinstance(problem, SystemExit):
            code = problem.code
            return f"SystemExit: {code}\n" if code is None or isinstance(code, int) else cut(str(code)) + "\n"
        text = self.space.explain(problem, request["code"])
        if len(text) <= TEXT_CHARS - 96:
            return text
        half = TEXT_CHARS // 2 - 64
        return text[:half] + "\n" + CUT + "\n" + text[-half:]


class MissingName(Exception):
    """A field names a global that doesn't exist."""


class Names(dict):
    def __missing__(self, name):
        raise MissingName(name)


def text_of(problem):
    try:
        return cut(str(problem))
    except BaseException:  # an interrupt too: the answer is on its way
        return ""


def with_variables(values):
    """Sets variables, or deletes those with None; returns the earlier values."""
    before = {}
    for name, value in (values or {}).items():
        try:
            before[name] = os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        except BaseException:  # the code may have replaced it
            pass
    return before


WHOLE_PRINT = 1 << 16  # characters: longer output comes in pieces anyway


@functools.cache
def whole_prints():
    """Makes each print one write from now on, so that a reader sees whole lines."""
    plain = builtins.print

    def print(*values, sep=" ", end="\n", file=None, flush=False):
        if file is None:
            file = sys.stdout
        if type(file) is not io.TextIOWrapper or any(type(v) is str and len(v) > WHOLE_PRINT for v in values):
            return plain(*values, sep=sep, end=end, file=file, flush=flush)
        text = io.StringIO()
        plain(*values, sep=sep, end=end, file=text)
        file.write(text.getvalue())
        if flush:
            file.flush()

    print.__qualname__, print.__doc__, print.__module__ = "print", plain.__doc__, "builtins"
    if type(plain) is types.BuiltinFunctionType:
        builtins.print = print


@functools.cache
def c_library():
    """Returns the C library, None without one. Its output is written at the end of each line: what
    C code prints comes in its place, and before a kill."""
    try:
        library = ctypes.CDLL(None)
        library.setvbuf(ctypes.c_void_p.in_dll(library, "stdout"), None, 1, ctypes.c_size_t(0))  # _IOLBF
        return library
    except Exception:
        return None


def flush():
    if c_library() is not None:
        c_library().fflush(None)
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()
        except BaseException:
            pass


def text_streams():
    """Returns unbuffered text streams on the standard descriptors: output before a kill
    isn't lost, and they contain no data of earlier owners."""
    for fd, name in ((1, "stdout"), (2, "stderr")):
        raw = io.FileIO(fd, "wb", closefd=False)
        stream = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="replace", closefd=False)


@functools.cache
def ordinary_interpreter():
    """Turns this process, once, into a usual interpreter: with streams, and with the parts
    that an isolated start omits: installed packages, exit and help. It also removes
    state of the forked process."""
    text_streams()
    c_library()
    warnings._warn_unawaited_coroutine = unawaited
    for folder in site.getsitepackages():
        if folder not in sys.path:
            site.addsitedir(folder)
    site.setquit()
    site.sethelper()
    builtins.input = asking(builtins.input)
    if "random" in sys.modules:
        sys.modules["random"].seed()


def user_site():
    """Returns the directory of `pip install` in a session, or None. It may contain code
    that runs at every start: only a process without rights may add it."""
    base = os.environ.get("PYTHONUSERBASE")
    return base and f"{base}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def session_for(channel, request):
    ordinary_interpreter()
    if request["restricted"]:
        return Session(channel, Restricted, os.getcwd())
    if "" not in sys.path:
        sys.path.insert(0, "")
    session = Session(channel, Interactive if request.get("kept") and has_ipython() else Plain, os.getcwd())
    if request.get("dir"):
        try:
            os.chdir(request["dir"])
        except (OSError, ValueError):  # the workspace remains the directory
            pass
    return session


def warm(inp, out):
    """Runs main with an empty request, before the call is known. So the process that is
    forked for each call has already copied most of the memory pages that it writes."""
    request = {"id": "", "code": "1+1", "globals": {}, "reads": [], "fields": [], "restricted": False}
    inp, feed = os.pipe()
    os.write(feed, framed(request))
    os.close(feed)
    channel = Channel(open(inp, "rb"), out)
    request, reads = channel.receive()
    session = session_for(channel, request)
    channel.send(session.evaluate(request, reads))
    finish(session)
    channel.close()


def main(inp, out):
    channel = Channel(inp, out)
    gc.freeze()
    sys.argv = [""]
    os.environ.setdefault("MPLBACKEND", "agg")
    request, reads = channel.receive()
    if request is None:
        return
    if not request["restricted"] and user_site():
        site.addsitedir(user_site())
    session = session_for(channel, request)
    code = 0
    if request["kept"]:
        serve(channel, session, request, reads)
    else:
        answer = session.evaluate(request, reads)
        channel.send(answer)
        await_threads()
        code = 0 if answer["status"] == "exited" else 1
    finish(session)
    os._exit(code)


def serve(channel, session, request, reads):
    streams = [(fd, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 512)) for fd in (1, 2)]
    while request is not None:
        sys.path_importer_cache.pop(user_site(), None)  # it may exist by now
        answer = session.evaluate(request, reads)
        flush()
        for fd, saved in streams:
            os.dup2(saved, fd)
        channel.send(answer)
        request, reads = channel.receive()


def await_threads():
    """Waits a moment for the code's threads, for which an interpreter waits without a bound: what they print belongs
    to the call."""
    threading, pools = sys.modules.get("threading"), sys.modules.get("concurrent.futures.thread")
    try:
        if pools:  # their idle threads wait for this
            pools._shutdown = True
            for queue in list(pools._threads_queues.values()):
                queue.put(None)
        end = monotonic() + THREADS_WAIT
        while threading and monotonic() < end:
            left = [t for t in threading.enumerate() if t is not threading.current_thread() and not t.daemon]
            if not left:
                break
            left[0].join(max(end - monotonic(), 0))
    except BaseException:  # the code may have replaced anything
        pass


def finish(session):
    """Ends like an interpreter, but waits no longer for threads: it flushes and closes open
    files, and runs the functions that were registered for the exit."""
    names = session.space.names
    for step in (lambda: close_loop(session.space), atexit._run_exitfuncs, names.clear, gc.collect, flush):
        try:
            step()
        except BaseException:
            pass


def close_loop(space):
    loop = getattr(space, "loop", None)
    if loop is None or loop.is_closed():
        return
    import asyncio

    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()
