# The program itself: it reads requests from a private channel, evaluates them
# and answers each with one message. Only main does anything; the host may have
# executed all that stands above it long before, with more rights.
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
from time import sleep

SELF = inspect.currentframe().f_code.co_filename
MESSAGE_BYTES = 32 << 20
SOURCES_KEPT = 64


class Channel:
    """The two private descriptors, moved away from where code would look."""

    def __init__(self, inp, out):
        self.inp, self.out = hide(inp), hide(out)

    def receive(self):
        """A request and the texts of its reads; None and none at the end."""
        size = 0
        while size == 0:  # an empty message replies to what nobody waits for
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
    """A close-on-exec duplicate well above the descriptors of programs."""
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
    """Ordinary Python in a module of its own that is __main__."""

    formatter = None  # of what is shown, where it isn't ours
    machinery = (SELF,)  # what the names of files begin with whose frames tracebacks leave out
    elsewhere = False  # whether code may stand in other files only

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
        """Runs code, of a magic for instance, as a part of what runs now."""
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
        """The last value is _ from now on, unless the code has a name _ of its own."""
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
    """Tracebacks and inspect show the user's own lines."""
    lines = [line + "\n" for line in code.split("\n")]
    linecache.cache[filename] = (len(code), None, lines, filename)
    ours = [name for name in linecache.cache if name.startswith("<code")]
    for old in ours[:-SOURCES_KEPT]:
        del linecache.cache[old]


def trim(report, space, seen):
    """Leaves of a traceback what the user wrote or called: no frame of the
    machinery and nothing above the first own line."""
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
    """Python names what let go of the coroutine; where that is the driver, at the
    end of the code, the user knows the function alone."""
    frame, code = inspect.currentframe().f_back, coroutine.cr_code
    where = code.co_filename, code.co_firstlineno
    if frame and frame.f_code.co_filename != SELF:
        where = frame.f_code.co_filename, frame.f_lineno
    warnings.warn_explicit(f"coroutine '{coroutine.__qualname__}' was never awaited", RuntimeWarning, *where)


class Session:
    """One namespace and what it takes to evaluate in it again and again."""

    def __init__(self, channel, kind, root):
        self.channel = channel
        self.workspace = Workspace(root)
        self.space = kind(self.workspace)
        self.pid = os.getpid()
        self.interruptible = self.interrupted = False
        self.interrupts = 0  # that have come, ever
        self.telling = self.late = False  # an interrupt must not cut a message
        self.listening = None  # the id of the evaluation that the host follows
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
        """Interrupts of the evaluations before this one must not end it. Two that come
        together are one, so that this waits 0.2 s and no longer."""
        for _ in range(100):
            if self.interrupts >= sent:
                break
            sleep(0.002)
        self.interrupts = sent  # the code's own are none of the host's

    def teller(self, ident):
        """Sends events of this evaluation to the host while it runs, from any thread. A
        forked child sends nothing. The host replies to so many events and no more."""
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
                        self.channel.exactly(4)  # the host has it
            finally:
                if main:
                    self.telling = False
            if main and self.late:
                self.late = False
                raise KeyboardInterrupt

        return tell

    def evaluate(self, request, reads):
        """Always one answer, whatever the code did."""
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
            with self.turn:  # what a thread sends now is too late
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
        """sys.exit() and sys.exit(0) end the code well, anything else fails."""
        if leaving.code in (None, 0):
            return None
        raise leaving

    def same_process(self):
        """A child that the code forked ends where the code ends, unheard."""
        if os.getpid() != self.pid:
            flush()
            os._exit(0)

    def collect(self, request, value, answer):
        if value is not None:
            answer["value"] = self.display.value(value)
        self.display.figures()
        answer["globals"], answer["globals_dropped"] = self.globals()
        answer["names"] = self.template_names(request["names"])
        answer["writes"] = self.workspace.queued()
        answer.update(self.display.answer())

    def globals(self):
        return global_texts(self.space.visible(), {**self.space.hidden, **self.given})

    def template_names(self, wanted):
        names, texts = self.space.names, {}
        for name in wanted:
            if name in names:
                value = names[name]
                texts[name] = (value if isinstance(value, str) else str(value))[: WRITE_CHARS + 1]
                texts[name].encode()  # a lone surrogate can't be stored: say so here
        return texts

    def fail(self, request, answer, problem):
        self.same_process()
        ident = answer["id"]
        answer.clear()
        answer.update(bare(ident, ""))
        if request.get("feed"):
            answer["raised"] = {"name": cut(type(problem).__name__), "value": text_of(problem)}
        if isinstance(problem, Unsupported):
            answer["unsupported"] = str(problem)
            return
        try:
            answer["traceback"] = self.explained(request, problem)
        except BaseException as second:
            answer["traceback"] = f"{type(problem).__name__} (its text raised {type(second).__name__})\n"
        self.leave_behind(request, answer)

    def leave_behind(self, request, answer):
        """What was set and asked for until the code failed: it is reported, not done. A
        call that was interrupted has no time left for the methods of its values."""
        answer["writes"] = self.workspace.queued()
        answer.update(self.display.answer())
        if self.interrupted:
            return
        try:
            answer["globals"], answer["globals_dropped"] = self.globals()
            answer["names"] = self.template_names(request["names"])
        except BaseException:  # of a repr: what was found so far stands
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


def text_of(problem):
    try:
        return cut(str(problem))
    except BaseException:  # an interrupt too: the answer is on its way
        return ""


def with_variables(values):
    """Sets variables, None being none; returns what they were."""
    before = {}
    for name, value in (values or {}).items():
        try:
            before[name] = os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        except BaseException:  # the code may have made anything of it
            pass
    return before


WHOLE_PRINT = 1 << 16  # characters: what is longer comes in pieces anyway


@functools.cache
def whole_prints():
    """From now on a print is one write, so that a reader sees whole lines."""
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


def flush():
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()
        except BaseException:
            pass


def text_streams():
    """Unbuffered text on the standard descriptors: what was printed before a
    kill is there, and nothing of an earlier owner of the objects."""
    for fd, name in ((1, "stdout"), (2, "stderr")):
        raw = io.FileIO(fd, "wb", closefd=False)
        stream = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="replace", closefd=False)


@functools.cache
def ordinary_interpreter():
    """Makes of this process, once, an interpreter as people know it: streams, and
    what an isolated start leaves out, installed packages, exit and help. And no
    state of the one that was forked."""
    text_streams()
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
    """Where `pip install` puts what a session's programs install, or None. It may
    hold code for every start: only who has given up its rights may add it."""
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
        except (OSError, ValueError):  # the workspace stays the directory
            pass
    return session


def warm(inp, out):
    """The way of main with a request for nothing, before the call is known: what is
    forked for each call then has for its own already most of the memory that it
    writes."""
    request = {"id": "", "code": "1+1", "globals": {}, "reads": [], "names": [], "restricted": False}
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
    try:
        session = session_for(channel, request)
    except Unsupported as missing:
        channel.send({**bare(request["id"], ""), "unsupported": str(missing)})
        os._exit(0)
    code = 0
    if request["kept"]:
        serve(channel, session, request, reads)
    else:
        answer = session.evaluate(request, reads)
        channel.send(answer)
        code = 0 if answer["status"] == "exited" else 1
    finish(session)
    os._exit(code)


def serve(channel, session, request, reads):
    streams = [(fd, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 512)) for fd in (1, 2)]
    while request is not None:
        sys.path_importer_cache.pop(user_site(), None)  # it may be there by now
        answer = session.evaluate(request, reads)
        flush()
        for fd, saved in streams:
            os.dup2(saved, fd)
        channel.send(answer)
        request, reads = channel.receive()


def finish(session):
    """Ends as an interpreter does, but for threads that still run: what is open
    is flushed and closed, what was registered for the exit runs."""
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
