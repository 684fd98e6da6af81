# The restricted sandbox: asteval's interpreter, narrowed. asteval refuses
# attributes by a list of bad names; this refuses an attribute unless its object has a plain builtin type and it is one
# of the type's public methods. Errors are Python's own exceptions, raised once.

import itertools
import ast
import builtins
import importlib
import inspect
import traceback
import types

ASTEVAL_LEAST = (1, 0, 6)
SYMBOLS = (
    "int", "float", "bool", "str", "list", "dict", "tuple", "set", "sorted", "min", "max", "sum",
    "abs", "round", "range", "len", "enumerate", "zip", "any", "all", "map", "isinstance", "repr", "chr",
)


class Unsupported(Exception):
    """The image lacks what the sandbox needs; the text names it."""


def public(kind, *refused):
    return frozenset(n for n in dir(kind) if not n.startswith("_") and n not in refused)


METHODS = {
    str: public(str, "format", "format_map"),
    **{kind: public(kind) for kind in (bytes, int, float, complex, bool, list, tuple, dict, set, frozenset, range)},
}


class Kind:
    """The result of type() for a value, which hides the class: it has the name, and tests
    whether a value has the type. It can't be called and has no other attribute."""

    __slots__ = ("kind",)

    def __init__(self, kind):
        self.kind = kind

    def __instancecheck__(self, value):
        return type(value) is self.kind

    def __eq__(self, other):
        return type(other) is Kind and self.kind is other.kind

    def __hash__(self):
        return hash(self.kind)

    def __repr__(self):
        return f"<class {self.kind.__name__!r}>"


Kind.__name__ = "type"  # for messages


def restricted_type(value):
    return type(value) if type(value) in METHODS else Kind(type(value))


restricted_type.__name__ = restricted_type.__qualname__ = "type"


class Library:
    """A module's public functions and numbers, without the module."""

    __slots__ = ("name", "members")

    def __init__(self, name):
        module = importlib.import_module(name)
        names = getattr(module, "__all__", None) or public(module)
        self.name = name
        self.members = {
            n: getattr(module, n) for n in names
            if not n.startswith("_") and not isinstance(getattr(module, n), (type, types.ModuleType))
        }

    def __repr__(self):
        return f"<library {self.name}>"


def attribute(value, name):
    """Returns an attribute of a value. It is the only way to get one."""
    if type(value) is Library:
        if name in value.members:
            return value.members[name]
        raise AttributeError(f"{value.name} has no {name!r} here")
    if isinstance(value, BaseException) and name == "args":
        return value.args
    if name == "__name__" and (type(value) is Kind or isinstance(value, type) and value in METHODS):
        return value.kind.__name__ if type(value) is Kind else value.__name__
    kind = value if isinstance(value, type) else type(value)
    if name in METHODS.get(kind, ()):
        return getattr(value, name)
    raise AttributeError(f"{kind.__name__!r} has no attribute {name!r} that the restricted sandbox allows")


def exception_class(name):
    found = getattr(builtins, name, None)
    if isinstance(found, type) and issubclass(found, Exception):
        return found
    raise NameError(f"name {name!r} is not an exception")


def version_of(asteval):
    digits = (part for part in str(getattr(asteval, "__version__", "0")).split("."))
    return tuple(int(d) for d in itertools.islice((d for d in digits if d.isdigit()), 3))


def import_asteval():
    try:
        asteval = importlib.import_module("asteval")
    except ImportError:
        raise Unsupported("asteval") from None
    if version_of(asteval) < ASTEVAL_LEAST:
        raise Unsupported("asteval")
    return asteval


class Scope(dict):
    """The local names of a function call or a comprehension, and those around it."""

    __slots__ = ("outer",)

    def __init__(self, outer, names=()):
        super().__init__(names)
        self.outer = outer

    def __missing__(self, name):
        return self.outer[name]

    def __contains__(self, name):
        return super().__contains__(name) or name in self.outer

    def get(self, name, default=None):
        return self[name] if name in self else default


class Function:
    """A function or lambda of the evaluated code. Its arguments bind as Python's
    do, and it sees the names around its definition."""

    __slots__ = ("inner", "name", "signature", "body", "scope")

    def __init__(self, inner, name, node):
        self.inner, self.name, self.body, self.scope = inner, name, node.body, inner.symtable
        self.signature = signature_of(inner, node.args)

    def __call__(self, *args, **options):
        bound = self.signature.bind(*args, **options)
        bound.apply_defaults()
        return self.inner.enter(self, bound.arguments)

    def __repr__(self):
        return f"<function {self.name}>"


Function.__name__ = "function"


def signature_of(inner, args):
    def parameter(arg, kind, default=inspect.Parameter.empty):
        value = default if default is inspect.Parameter.empty else inner.run(default)
        return inspect.Parameter(arg.arg, kind, default=value)

    kinds = inspect.Parameter
    plain = [(a, kinds.POSITIONAL_ONLY) for a in args.posonlyargs]
    plain += [(a, kinds.POSITIONAL_OR_KEYWORD) for a in args.args]
    defaults = [kinds.empty] * (len(plain) - len(args.defaults)) + args.defaults
    found = [parameter(a, kind, d) for (a, kind), d in zip(plain, defaults)]
    found += [parameter(args.vararg, kinds.VAR_POSITIONAL)] if args.vararg else []
    for arg, default in zip(args.kwonlyargs, args.kw_defaults):
        found.append(parameter(arg, kinds.KEYWORD_ONLY, kinds.empty if default is None else default))
    found += [parameter(args.kwarg, kinds.VAR_KEYWORD)] if args.kwarg else []
    return inspect.Signature(found)


def make_interpreter(helpers):
    asteval = import_asteval()

    class Interpreter(asteval.Interpreter):
        def __init__(self):
            self.line = None
            self.handling = []
            symbols = {name: getattr(builtins, name) for name in SYMBOLS}
            symbols.update(helpers, math=Library("math"), statistics=Library("statistics"))
            off = {"import": False, "importfrom": False, "with": False}
            super().__init__(symtable=symbols, use_numpy=False, config=off)
            self.symtable.update(print=restricted_print, type=restricted_type)
            self.initial = dict(self.symtable)
            self.node_handlers.update({"generatorexp": self.on_listcomp, "lambda": self.on_lambda})

        # Errors: the exception itself is passed on, with the line where it began.

        def raise_exception(self, node, exc=None, msg="", expr=None, lineno=None):
            raise (exc or RuntimeError)(str(msg))

        def run(self, node, expr=None, lineno=None, with_raise=True):
            if node is None or self.leaving():
                return None
            if not isinstance(node, ast.AST):
                raise TypeError("only parsed code is run")
            handler = self.node_handlers.get(type(node).__name__.lower(), self.unimplemented)
            try:
                return handler(node)
            except BaseException:
                if self.line is None:
                    self.line = getattr(node, "lineno", None)
                raise

        def leaving(self):
            """Reports whether a return, break or continue is in progress."""
            return self.retval is not None or self._interrupt is not None

        def unimplemented(self, node):
            raise NotImplementedError(f"{type(node).__name__} is not supported in the restricted sandbox")

        def block(self, nodes):
            for node in nodes:
                self.run(node)

        # Attributes are read only if they are on the list of allowed ones, and never stored or deleted.

        def on_attribute(self, node):
            if not isinstance(node.ctx, ast.Load):
                raise AttributeError("attributes can't be assigned or deleted here")
            return attribute(self.run(node.value), node.attr)

        def node_assign(self, node, val):
            if isinstance(node, ast.Attribute):
                raise AttributeError("attributes can't be assigned here")
            if isinstance(node, (ast.Tuple, ast.List)):
                val = list(val)
            elif not isinstance(node, (ast.Name, ast.Subscript)):
                self.unimplemented(node)
            super().node_assign(node, val)

        def on_delete(self, node):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    if not dict.__contains__(self.symtable, target.id):
                        raise NameError(f"name {target.id!r} is not defined here")
                    del self.symtable[target.id]
                elif isinstance(target, ast.Subscript):
                    del self.run(target.value)[self.run(target.slice)]
                else:
                    self.unimplemented(target)

        def on_formattedvalue(self, node):
            val = self.run(node.value)
            convert = {115: str, 114: repr, 97: ascii}.get(node.conversion)
            spec = "" if node.format_spec is None else self.run(node.format_spec)
            return format(convert(val) if convert else val, spec)

        def on_call(self, node):
            func = self.run(node.func)
            if not callable(func):
                raise TypeError(f"{type(func).__name__!r} object is not callable")
            args, options = [], {}
            for item in node.args:
                args.extend(self.run(item.value) if isinstance(item, ast.Starred) else [self.run(item)])
            for item in node.keywords:
                options.update(self.run(item.value) if item.arg is None else {item.arg: self.run(item.value)})
            return func(*args, **options)

        def on_functiondef(self, node):
            if node.decorator_list:
                raise NotImplementedError("decorators are not supported in the restricted sandbox")
            self.symtable[node.name] = Function(self, node.name, node)

        def on_lambda(self, node):
            return Function(self, "<lambda>", node)

        def enter(self, function, arguments):
            """Runs a function's body; its names are gone when it leaves."""
            before = self.symtable
            self.symtable = Scope(function.scope, arguments)
            self._calldepth += 1
            try:
                if isinstance(function.body, ast.AST):  # a lambda
                    return self.run(function.body)
                self.block(function.body)
                return self.retval[0] if self.retval else None
            finally:
                self._calldepth -= 1
                self.symtable, self.retval, self._interrupt = before, None, None

        def on_return(self, node):
            if self._calldepth == 0:
                raise SyntaxError("'return' outside function")
            self.retval = (self.run(node.value),)

        # Control flow that leaves at the same points as Python.

        def body(self, nodes):
            """Runs a loop's body once; true when the loop is over."""
            self.block(nodes)
            how, self._interrupt = self._interrupt, None
            return isinstance(how, ast.Break) or self.retval is not None

        def on_while(self, node):
            while self.run(node.test):
                if self.body(node.body):
                    return
            self.block(node.orelse)

        def on_for(self, node):
            for val in self.run(node.iter):
                self.node_assign(node.target, val)
                if self.body(node.body):
                    return
            self.block(node.orelse)

        def on_try(self, node):
            try:
                self.guarded(node)
            finally:
                left = self.retval, self._interrupt
                self.retval = self._interrupt = None
                self.block(node.finalbody)
                if self.retval is None and self._interrupt is None:
                    self.retval, self._interrupt = left

        def guarded(self, node):
            try:
                self.block(node.body)
            except Exception as problem:
                handler = self.handler_of(node.handlers, problem)
                if handler is None:
                    raise
                self.line = None
                self.handle(handler, problem)
            else:
                self.block(node.orelse)

        def handler_of(self, handlers, problem):
            for handler in handlers:
                kinds = getattr(handler.type, "elts", [handler.type])
                if any(k is None or isinstance(problem, exception_class(k.id)) for k in kinds):
                    return handler
            return None

        def handle(self, handler, problem):
            self.handling.append(problem)
            if handler.name:
                self.symtable[handler.name] = problem
            try:
                self.block(handler.body)
            finally:
                self.handling.pop()
                if handler.name:
                    self.symtable.pop(handler.name, None)

        def on_raise(self, node):
            call = node.exc
            if call is None:
                raise self.handling[-1] if self.handling else RuntimeError("No active exception to reraise")
            name, args = (call.func, call.args) if isinstance(call, ast.Call) else (call, [])
            if not isinstance(name, ast.Name):
                self.unimplemented(name)
            if isinstance(self.symtable.get(name.id), Exception):
                raise self.symtable[name.id]
            raise exception_class(name.id)(*[self.run(arg) for arg in args])

        def on_assert(self, node):
            if not self.run(node.test):
                raise AssertionError(*([self.run(node.msg)] if node.msg else []))

        # A comprehension's names are its own.

        def comprehend(self, node, add):
            before = self.symtable
            self.symtable = Scope(before)
            try:
                self.generate(node.generators, add)
            finally:
                self.symtable = before

        def generate(self, generators, add):
            if not generators:
                return add()
            first, *rest = generators
            if first.is_async:
                self.unimplemented(first)
            for val in self.run(first.iter):
                self.node_assign(first.target, val)
                if all(self.run(test) for test in first.ifs):
                    self.generate(rest, add)

        def on_listcomp(self, node):
            out = []
            self.comprehend(node, lambda: out.append(self.run(node.elt)))
            return out

        def on_setcomp(self, node):
            return set(self.on_listcomp(node))

        def on_dictcomp(self, node):
            out = {}
            self.comprehend(node, lambda: out.update({self.run(node.key): self.run(node.value)}))
            return out

    return Interpreter()


def restricted_print(*values, sep=" ", end="\n", flush=False):
    print(*values, sep=sep, end=end, flush=flush)


class Restricted:
    """The restricted namespace; one lives as long as its names are kept."""

    formatter = None

    def __init__(self, workspace):
        self.inner = make_interpreter(workspace.helpers())
        self.names = self.inner.symtable
        self.hidden = dict(self.inner.initial)
        self.display = None  # the session's, of a call

    def run(self, code, filename):
        inner = self.inner
        inner.symtable = self.names
        inner.line = inner.retval = inner._interrupt = None
        inner._calldepth, inner.handling = 0, []
        tree, more = parsed(code, filename)
        if more:
            raise SyntaxError(NO_NOTEBOOK)
        compile(tree, filename, "exec", dont_inherit=True)  # finds errors that only compiling reports; never run
        body = tree.body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        inner.block(body)
        return None if last is None else inner.run(last.value)

    def keep(self, value):
        """The small interpreter has no name _."""

    def visible(self):
        return {n: v for n, v in self.names.items() if not isinstance(v, (Function, Library, Kind))}

    def explain(self, problem, code):
        """Returns the error once: the line as the user wrote it, and the exception."""
        text = "".join(traceback.format_exception_only(type(problem), problem))
        lines, number = code.splitlines(), self.inner.line
        if isinstance(problem, SyntaxError) or not number or number > len(lines):
            return text
        return f'  File "<code>", line {number}\n    {cut(lines[number - 1].strip(), 200)}\n{text}'
