# IPython, if the interpreter can import it: a kept interpreter is then its shell, and the language is IPython's. The
# channel, limits, commands, displays and error messages remain the driver's.

IPYTHON_SINCE = 8


def has_ipython():
    """Reports whether IPython can be imported. The import itself waits for the first code,
    whose interrupt may end it."""
    import importlib.util

    try:
        found = importlib.util.find_spec("IPython")
    except RAISED:
        return False
    return found is not None and found.origin is not None


class Interactive(Plain):
    """IPython's shell over the names of a kept interpreter. If it fails
    to start, the driver works without it."""

    def __init__(self, workspace):
        super().__init__(workspace)
        self.given = {name: value for name, value in self.names.items() if name != "display"}  # display is a builtin of IPython
        self.shell = self.result = self.problem = None
        self.starting = True
        self.formatting = self.count = 0

    def start(self):
        try:
            import codeop

            import IPython

            if IPython.version_info[0] < IPYTHON_SINCE:
                raise ImportError(f"IPython {IPython.__version__} is older than {IPYTHON_SINCE}")
            shell = shell_class().over(self)
        except RAISED as problem:
            reason = cut(f"{type(problem).__name__}: {text_of(problem)}", 500)
            print(f"IPython is installed but can't be used, so the code runs without it: {reason}", file=sys.stderr)
        else:
            self.names.pop("display", None)
            self.elsewhere = True  # in a file of %run, or in code that a magic runs
            self.machinery = (SELF, codeop.__file__, os.path.dirname(IPython.__file__) + os.sep)
            self.shell, self.run_cell = shell, shell.run_cell
            self.formatter = self.display.formatter = shell.display_formatter
        self.starting = False

    def run(self, code, filename):
        self.count += 1
        if self.starting:
            self.start()
        if self.shell is None:
            return super().run(code, filename)
        self.filename = filename
        self.shell.execution_count = self.count
        self.result = self.problem = None
        try:
            ran = self.run_cell(code, store_history=True)
            problem = ran.error_before_exec or ran.error_in_exec or self.problem
            if problem is not None:
                raise problem
            return self.result
        finally:
            self.result = self.problem = problem = None

    def keep(self, value):
        if self.shell is None:
            super().keep(value)

    def complete(self, coroutine):
        return self.event_loop().run_until_complete(coroutine)

    def shown(self, value):
        """Takes the value of an expression that IPython would print. If there are several,
        the last one is the code's value."""
        before, self.result = self.result, value
        if before is not None:
            entries = self.formatter.format(before)[0]
            if entries:
                self.display.raw(entries, before)

    def failed(self, problem):
        """Takes an error that IPython would print: the code has failed with it, unless
        it is an error of a display method."""
        sys.last_type, sys.last_value, sys.last_traceback = type(problem), problem, problem.__traceback__
        if self.formatting:
            print(cut(self.explain(problem, "")), end="", file=sys.stderr)
        else:
            self.problem = problem


class Formatted(dict):
    """The output of formatters for a value, and the value."""

    def __init__(self, entries, value):
        super().__init__(entries)
        self.value = value


def long_text(value):
    """Returns the cut text of a builtin value that is too long: the pretty form could have
    any length before the cut."""
    if type(value) not in PLAIN:
        return None
    try:
        text = short_repr(value)
    except RAISED:
        return None
    return text if len(text) == TEXT_CHARS else None


@functools.cache
def shell_class():
    """Returns the class Shell, whose base class exists only after an import."""
    from IPython.core.compilerop import CachingCompiler
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.formatters import DisplayFormatter
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.text import LSString, SList
    from traitlets.config import Config

    class Compiler(CachingCompiler):
        def get_code_name(self, raw_code, transformed_code, number):
            if Shell.depth == 1:
                return Shell.space.filename
            return super().get_code_name(raw_code, transformed_code, number)

    class Hook(DisplayHook):
        """Takes values in place of printing them."""

        def write_output_prompt(self):
            pass

        def compute_format_data(self, result):
            self.shell.space.shown(result)
            return {}, {}

        def finish_displayhook(self):
            pass

    class Publisher(DisplayPublisher):
        def publish(self, data, metadata=None, source=None, **more):
            if isinstance(data, dict):
                self.shell.space.display.raw(data, getattr(data, "value", None))

        def clear_output(self, wait=False):
            """What was shown has been sent."""

    class Formatter(DisplayFormatter):
        def format(self, value, include=None, exclude=None):
            text = long_text(value)
            if text is not None:
                return Formatted({"text/plain": text}, value), {}
            space = self.parent.space
            space.formatting += 1
            try:
                entries, facts = super().format(value, include, exclude)
            finally:
                space.formatting -= 1
            if entries and is_figure(value) and not any(mime.startswith("image/") for mime in entries):
                entries["image/png"] = png_of(value)
            return Formatted(with_table(value, entries) if entries else {}, value), facts

    class Shell(InteractiveShell):
        compiler_class = Compiler
        depth = 0  # of cells that run cells

        @classmethod
        def over(cls, space):
            config = Config()
            config.HistoryManager.enabled = False  # no history file
            config.InteractiveShell.colors = "nocolor"
            config.InteractiveShell.show_rewritten_input = False
            cls.space = space
            InteractiveShell.clear_instance()
            shell = cls.instance(config=config, user_module=space.module, displayhook_class=Hook, display_pub_class=Publisher)
            shell.loop_runner = space.complete
            shell.set_hook("show_in_pager", page, 0)
            warnings.filterwarnings("ignore", "To exit: use", UserWarning)
            return shell

        def init_user_ns(self):
            """At the start, and after %reset."""
            before, given = set(self.user_ns), self.space.given
            super().init_user_ns()
            self.user_ns.update({name: value for name, value in given.items() if name not in before})
            self.space.hidden = {**given, **{name: value for name, value in self.user_ns.items() if name not in before}}
            self.user_ns_hidden.update(self.space.hidden)

        def init_display_formatter(self):
            self.display_formatter = Formatter(parent=self)
            self.configurables.append(self.display_formatter)

        def run_cell(self, *args, **options):
            Shell.depth += 1
            try:
                return super().run_cell(*args, **options)
            finally:
                Shell.depth -= 1

        def showtraceback(self, exc_tuple=None, *args, **options):
            problem = exc_tuple[1] if exc_tuple else sys.exc_info()[1]
            if problem is None:  # %tb, which shows the last error
                return super().showtraceback(exc_tuple, *args, **options)
            self.space.failed(problem)

        def showsyntaxerror(self, *args, **options):
            self.showtraceback()

        def system(self, command):
            self.user_ns["_exit_code"], _ = run_program(self.var_expand(command, depth=1))

        def getoutput(self, command, split=True, depth=0):
            self.user_ns["_exit_code"], text = run_program(self.var_expand(command, depth=depth + 1), capture=True)
            return SList(text.splitlines()) if split else LSString(text)

        def ask_exit(self):
            raise SystemExit

        def enable_gui(self, gui=None):
            """There are no windows; pictures need no loop of events."""

        def set_next_input(self, text, replace=False):
            print(text)

    def page(shell, data, start=0, screen_lines=0):
        print(data.get("text/plain", "") if isinstance(data, dict) else data)

    return Shell
