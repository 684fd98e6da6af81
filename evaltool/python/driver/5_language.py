# Notebook extensions of Python: %magic, !commands and ?help, and code that is indented as a whole. Code that Python
# itself can parse is never changed: only after a SyntaxError the statements are examined. Python's tokenizer finds
# them, so that text in a string, a comment or brackets is not taken for an extension.

import ast
import contextlib
import re
import tokenize

NAME = r"[^\W\d]\w*"
DOTTED = rf"{NAME}(?:\.{NAME})*"
TARGET = rf"{NAME}(?:\.{NAME}|\[[^\[\]'\"\n]*\])*"
MAGIC = re.compile(rf"%({NAME})(?:\s+(.*))?", re.DOTALL)
CELL_MAGIC = re.compile(rf"\s*%%({NAME})(?:\s+(.*))?")
HELP_BEFORE = re.compile(rf"(\?\??)\s*(%?{DOTTED})")
HELP_AFTER = re.compile(rf"(%?{DOTTED})\s*(\?\??)")
ASSIGNED = re.compile(rf"({TARGET}(?:\s*,\s*{TARGET})*)\s*=\s*([!%])(?!=)(.*)", re.DOTALL)
HOOK = "__wisbox__"  # called by the translated code; such names are never shown
NO_NOTEBOOK = "the sandbox restricted has no %magic, !command and ?help; use the sandbox container"


def parsed(code, filename):
    """Returns the tree of the code, and whether it uses extensions."""
    try:
        return ast.parse(code, filename), False
    except SyntaxError as problem:
        reason = problem
    text = translated(code)
    if begins_indented(text):
        return within_block(text, filename), text != code
    if text == code:
        raise reason
    return ast.parse(text, filename), True


def begins_indented(code):
    for line in code.split("\n"):
        if line.strip() and not line.lstrip().startswith("#"):
            return line[0] in " \t"
    return False


def within_block(code, filename):
    """Returns code that is indented as a whole as the body of a block: its strings stay the same."""
    try:
        tree = ast.parse("if 1:\n" + code, filename)
    except SyntaxError as problem:
        raise one_line_up(problem) from None
    if len(tree.body) != 1 or tree.body[0].orelse:
        return ast.parse(code, filename)  # which raises the right error
    tree = ast.Module(body=tree.body[0].body, type_ignores=[])
    return ast.increment_lineno(tree, -1)


def one_line_up(problem):
    problem.lineno = problem.lineno and problem.lineno - 1
    if getattr(problem, "end_lineno", None):
        problem.end_lineno -= 1
    problem.msg = re.sub(r"\bon line (\d+)", lambda found: f"on line {int(found[1]) - 1}", str(problem.msg))
    return problem


def translated(code):
    """Returns the code with calls in place of extensions. Line numbers stay the same."""
    lines = code.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    found = CELL_MAGIC.fullmatch(lines[first])
    if found:
        body = "\n" * (first + 1) + "\n".join(lines[first + 1:])
        return "\n" * first + hook("cell", found[1], found[2] or "", body)
    out, at = [], first
    while at < len(lines):
        if not lines[at].strip() or lines[at].lstrip().startswith("#"):
            end, said = at + 1, None
        else:
            end, said = statement(lines, at)
        if said is None:
            out += lines[at:end]
        else:
            indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
            out += [indent + said] + [""] * (end - at - 1)
        at = end
    return "\n" * first + "\n".join(out)


def hook(method, *texts):
    return f"{HOOK}.{method}({', '.join(map(repr, texts))})"


def statement(lines, at):
    """Returns the end of the statement that begins at a line, and the call that replaces
    it, or None if it may be Python."""
    text, end = lines[at].strip(), at + 1
    special = text[0] in "!%" or ASSIGNED.fullmatch(text)
    while special and text.endswith("\\") and end < len(lines):
        text = text[:-1].rstrip() + " " + lines[end].strip()
        end += 1
    said = call_for(text)
    if said is None:
        return end_of_python(lines, at), None
    return end, said


def call_for(text):
    found = HELP_BEFORE.fullmatch(text)
    if found:
        return hook("help", found[2], found[1])
    found = HELP_AFTER.fullmatch(text)
    if found:
        return hook("help", found[1], found[2])
    if text.startswith("!!"):
        return hook("output", text[2:])
    if text.startswith("!"):
        return hook("system", text[1:])
    found = MAGIC.fullmatch(text)
    if found:
        return hook("magic", found[1], found[2] or "")
    found = ASSIGNED.fullmatch(text)
    if found is None:
        return None
    targets, kind, rest = found.groups()
    if kind == "!":
        return f"{targets} = {hook('output', rest)}"
    found = MAGIC.fullmatch("%" + rest)
    return f"{targets} = {hook('magic', found[1], found[2] or '')}" if found else None


def end_of_python(lines, at):
    """Returns the line after the statement; if it has no end, Python will report the error."""

    def feed():
        yield lines[at].lstrip() + "\n"
        for number in range(at + 1, len(lines)):
            yield lines[number] + "\n"

    rest = feed()
    try:
        for token in tokenize.generate_tokens(lambda: next(rest, "")):
            if token.type == tokenize.NEWLINE:
                return at + token.start[0]
    except (tokenize.TokenError, SyntaxError):
        pass
    return len(lines)


class UsageError(Exception):
    """A wrong use of a magic."""


UsageError.__module__ = "builtins"  # so that messages show no module


class Lines(list):
    """The output lines of a command; s and n are the lines joined by blanks and by
    newlines."""

    l = property(list)
    s = property(" ".join)
    n = property("\n".join)


class Notebook:
    """The target of the calls in translated code."""

    def __init__(self, space):
        self.space = space
        self.before = None  # the directory before the last %cd

    # Commands.

    def system(self, command):
        self.space.names["_exit_code"], _ = run_program(self.expanded(command))

    def output(self, command):
        self.space.names["_exit_code"], text = run_program(self.expanded(command), capture=True)
        return Lines(text.splitlines())

    def expanded(self, command):
        """Expands {expressions} and $names in a command. If one has no value, the command
        stays unchanged, since the shell uses braces and dollars too."""
        names, outer = asker()

        def value_of(found):
            if found[0] in ("{{", "}}", "$$"):
                return found[0][0]
            if found[0].startswith("${"):
                return found[0]
            name = found["expression"] or found["name"]
            if found["name"] and name not in names and name not in outer:
                return found[0]
            if name.isidentifier() and name not in names and name not in outer:
                raise NameError(name)
            return str(eval(name, outer, names))

        try:
            return EXPANDED.sub(value_of, command)
        except RAISED:
            return command

    # Magics.

    def magic(self, name, rest):
        method = LINE_MAGICS.get(name)
        if method is None:
            listed = ", ".join("%" + known for known in sorted(LINE_MAGICS))
            raise UsageError(f"%{name} is no magic here; there are {listed}")
        return method(self, rest.strip() if name not in ("time", "timeit") else rest)

    def cell(self, name, rest, body):
        method = CELL_MAGICS.get(name)
        if method is None:
            listed = ", ".join("%%" + known for known in sorted(CELL_MAGICS))
            raise UsageError(f"%%{name} is no magic here; there are {listed}")
        return method(self, rest.strip(), body)

    def cd(self, rest):
        target = unquoted(rest) or "~"
        if target == "-":
            if self.before is None:
                raise UsageError("%cd -: there is no directory before this one")
            target = self.before
        here = os.getcwd()
        os.chdir(os.path.expanduser(self.expanded(target)))
        self.before = here
        print(os.getcwd())

    def pwd(self, rest):
        return os.getcwd()

    def env(self, rest):
        name, equals, value = rest.partition("=")
        if not equals:
            name, equals, value = rest.partition(" ")
        name = name.strip()
        if not name:
            return dict(os.environ)
        if not equals:
            if name not in os.environ:
                raise UsageError(f"%env: there is no variable {name}")
            return os.environ[name]
        os.environ[name] = self.expanded(value.strip())
        print(f"env: {name}={os.environ[name]}")

    def pip(self, rest):
        arguments = " ".join(["-m pip", self.expanded(rest)])
        self.space.names["_exit_code"], _ = run_program(f"{sys.executable or 'python3'} {arguments}")

    def matplotlib(self, rest):
        """Does nothing: figures are always shown."""

    def time(self, rest):
        return self.timed(lines_above() + rest)

    def cell_time(self, rest, body):
        return self.timed(body)

    def timed(self, code):
        import time

        wall, before = time.perf_counter(), os.times()
        try:
            return self.space.again(code)
        finally:
            wall = time.perf_counter() - wall
            user, system = (now - then for now, then in zip(os.times()[:2], before))
            if has_programs():  # WebAssembly doesn't measure processor time
                print(f"CPU times: user {duration(user)}, sys: {duration(system)}, total: {duration(user + system)}")
            print(f"Wall time: {duration(wall)}")

    def timeit(self, rest):
        options, code = timeit_options(rest)
        if not code.strip():
            raise UsageError("%timeit: give a statement to measure")
        return measured(self.space, options, "", code)

    def cell_timeit(self, rest, body):
        options, setup = timeit_options(rest)
        return measured(self.space, options, setup, body)

    def cell_shell(self, rest, body):
        import subprocess

        code, _ = run_program(body.lstrip("\n"))
        self.space.names["_exit_code"] = code
        if code:
            raise subprocess.CalledProcessError(code, "%%bash")

    # Help.

    def help(self, name, marks):
        if name.startswith("%"):
            known = name[1:] in LINE_MAGICS or name[1:] in CELL_MAGICS
            print(f"{name} is a magic, as in IPython." if known else f"{name} is no magic here.")
            return
        names, outer = asker()
        first_name, *rest = name.split(".")
        try:
            value = names[first_name] if first_name in names else outer[first_name] if first_name in outer else getattr(builtins, first_name)
            for part in rest:
                value = getattr(value, part)
        except RAISED:
            print(f"Object `{name}` not found.")
            return
        describe(name, value, len(marks) > 1)


EXPANDED = re.compile(rf"\{{\{{|\}}\}}|\$\$|\$\{{[^{{}}]*\}}|\{{(?P<expression>[^{{}}]+)\}}|\$(?P<name>{NAME})")
LINE_MAGICS = {
    "cd": Notebook.cd, "env": Notebook.env, "matplotlib": Notebook.matplotlib, "pip": Notebook.pip,
    "pwd": Notebook.pwd, "time": Notebook.time, "timeit": Notebook.timeit,
}
CELL_MAGICS = {"bash": Notebook.cell_shell, "sh": Notebook.cell_shell, "time": Notebook.cell_time, "timeit": Notebook.cell_timeit}


def frame_of_code():
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == SELF:
        frame = frame.f_back
    return frame


def asker():
    """Returns the local and global names at the call."""
    frame = frame_of_code()
    return (frame.f_locals, frame.f_globals) if frame else ({}, {})


def lines_above():
    """Returns as many empty lines as precede the call, for tracebacks."""
    frame = frame_of_code()
    return "\n" * (frame.f_lineno - 1) if frame else ""


def unquoted(text):
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def has_programs():
    return sys.platform != "wasi"


def run_program(command, capture=False):
    """Runs a command line to its end, in its own process group, which an interrupt ends.
    Its output is captured, or goes to the interpreter's own."""
    if not has_programs():
        raise OSError("WebAssembly has no programs: ! and %pip need the sandbox container")
    import subprocess

    flush()
    process = None
    try:
        with undisturbed():  # otherwise an interrupt could leave it running
            process = subprocess.Popen(
                command, shell=True, executable="/bin/bash" if os.path.exists("/bin/bash") else None, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if capture else None, encoding="utf-8", errors="replace",
            )
        text, _ = process.communicate()
    except BaseException:
        end_group(process)
        raise
    return process.returncode, text or ""


@contextlib.contextmanager
def undisturbed():
    """Delays interrupts until the end of the block."""
    handler, came = signal.getsignal(signal.SIGINT), []
    try:
        signal.signal(signal.SIGINT, lambda *args: came.append(args))
    except ValueError:  # a thread, which no interrupt reaches
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came and callable(handler):
            handler(*came[-1])


def end_group(process):
    if process is None:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    process.wait()


def duration(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


TIMEIT_OPTION = re.compile(r"\s*-(?:([nr])\s*(\d+)|([qo]))(?=\s|$)")
TIMEIT_SECONDS = 2.0  # of all runs together, by default


def timeit_options(text):
    options = {}
    while True:
        found = TIMEIT_OPTION.match(text)
        if found is None:
            return options, text.lstrip()
        options[found[1] or found[3]] = int(found[2] or 1)
        text = text[found.end():]


def measured(space, options, setup, code):
    import statistics

    timer = timer_of(space, setup, code)
    number, spent = options.get("n") or 0, None
    if not number:
        number, spent = timer.autorange()
    runs = options.get("r") or (7 if spent is None else max(1, min(7, int(TIMEIT_SECONDS / max(spent, 1e-9)))))
    each = [total / number for total in timer.repeat(runs, number)]
    if "q" not in options:
        spread = duration(statistics.pstdev(each)) if len(each) > 1 else "0 ns"
        print(f"{duration(statistics.mean(each))} ± {spread} per loop (mean ± std. dev. of {runs} run{'s'[:runs > 1]}, {number:,} loop{'s'[:number > 1]} each)")
    if "o" in options:
        return types.SimpleNamespace(average=statistics.mean(each), best=min(each), worst=max(each), all_runs=each, loops=number, repeat=runs)


def timer_of(space, setup, code):
    """A Timer whose loop holds the statements themselves."""
    import timeit

    tree = ast.parse("def inner(_it, _timer):\n pass\n _t0 = _timer()\n for _i in _it: pass\n return _timer() - _t0")
    body = tree.body[0].body
    body[2].body = parsed(code, space.filename)[0].body or [ast.Pass()]
    body[0:1] = parsed(setup, space.filename)[0].body or [ast.Pass()]
    made = {}
    program = compile(ast.fix_missing_locations(tree), space.filename, "exec", dont_inherit=True)
    exec(program, space.names, made)
    timer = timeit.Timer()
    timer.inner = made["inner"]
    return timer


def describe(name, value, detail):
    """Returns a notebook's help text of an object."""
    facts = []
    try:
        facts.append(("Signature", name + str(inspect.signature(value))))
    except RAISED:
        pass
    facts.append(("Type", type(value).__name__))
    if not callable(value):
        facts.append(("String form", cut(guarded_repr(value), 500)))
    for title, find in (("File", inspect.getfile), ("Source" if detail else "", inspect.getsource), ("Docstring", inspect.getdoc)):
        try:
            found = find(value) if title else None
        except RAISED:
            continue
        if found:
            facts.append((title, found))
    for title, text in facts:
        text = text.rstrip("\n")
        print(f"{title}:\n{text}" if "\n" in text else f"{title}: {text}")


def asking(ask):
    """Returns a builtin input that nobody answers; it reads input that the code redirected."""

    def input(prompt="", /):
        """Nobody answers here: this raises EOFError."""
        if sys.stdin is not sys.__stdin__:
            return ask(prompt)
        raise EOFError("input() has nobody to ask here: put the answer into globals or into the code")

    input.__qualname__ = "input"
    return input
