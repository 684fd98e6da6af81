# The restricted sandbox: Python itself runs the code, so that every result is Python's, after a check of its syntax
# tree. The tree may only have the nodes and names below, and each attribute is read by the function attribute, which
# knows the safe ones. Whatever is refused raises Refused, which code can't catch: it would go on with another result.

import ast
import builtins
import importlib
import traceback
import types
import warnings

NODES = frozenset("""
Module FunctionDef Return Delete Assign AugAssign AnnAssign For While If Raise Try ExceptHandler Assert Global Nonlocal Expr
Pass Break Continue Match match_case MatchValue MatchSingleton MatchSequence MatchMapping MatchStar MatchAs MatchOr MatchClass
BoolOp NamedExpr BinOp UnaryOp Lambda IfExp Dict Set ListComp SetComp DictComp GeneratorExp comprehension Compare Call keyword
FormattedValue JoinedStr Constant Attribute Subscript Starred Name List Tuple Slice arguments arg
""".split())
WORDS = {
    "Import": "import", "ImportFrom": "import", "ClassDef": "class", "With": "with", "AsyncFunctionDef": "async def", "AsyncFor": "async for",
    "AsyncWith": "async with", "Await": "await", "Yield": "yield", "YieldFrom": "yield", "TryStar": "except*", "TypeAlias": "type X = Y",
}
BUILTINS = """
abs all any ascii bin bool bytes callable chr complex dict divmod enumerate filter float format frozenset hash hex int
isinstance iter len list map max min next oct ord pow print range repr reversed round set slice sorted str sum tuple zip
""".split()
EXCEPTIONS = {n: k for n, k in vars(builtins).items() if isinstance(k, type) and issubclass(k, Exception)}


class Refused(BaseException):
    """Reports what the sandbox doesn't have."""

    latest = None  # of the current evaluation, which it ends even if a finally clause drops it

    def __init__(self, what, line=None):
        super().__init__(f"{what}; use the sandbox container")
        self.line = line
        Refused.latest = Refused.latest or self


Refused.__name__ = Refused.__qualname__ = "RestrictedError"
Refused.__module__ = "builtins"


def public(kind, *refused):
    return frozenset(n for n in dir(kind) if not n.startswith("_") and n not in refused)


METHODS = {
    str: public(str, "format", "format_map"),
    **{kind: public(kind) for kind in (bytes, int, float, complex, bool, list, tuple, dict, set, frozenset, range)},
}
CLASSES = {kind for kind in map(vars(builtins).get, BUILTINS) if isinstance(kind, type)}  # which code may have


class Kind:
    """Stands for a class that code must not have, such as a function's: it has its name and
    repr, and works in isinstance. The one for type can be called with a value."""

    __slots__ = ("kind",)
    known = {}

    def __init__(self, kind):
        self.kind = kind

    @staticmethod
    def of(kind):
        return kind if kind in CLASSES else Kind.known.setdefault(kind, Kind(kind))

    def __call__(self, *values, **options):
        if self.kind is not type or len(values) != 1 or options:
            raise Refused(f"{self!r} can't be called here, but type can with one value")
        return type_of(values[0])

    def __instancecheck__(self, value):
        found = type_of(value)
        return issubclass(getattr(found, "kind", found), self.kind)

    def __or__(self, other):
        raise Refused(f"{self!r} can't be part of a union here")

    __ror__ = __or__

    def __getattr__(self, name):  # for Python itself: the repr of list[…] has it
        if name == "__qualname__":
            return self.kind.__qualname__
        raise AttributeError(name)

    def __repr__(self):
        return repr(self.kind)


class Library:
    """A module's public functions and numbers, without the module."""

    __slots__ = ("name", "members", "others", "text")

    def __init__(self, name):
        module = importlib.import_module(name)
        found = {n: getattr(module, n) for n in getattr(module, "__all__", None) or public(module)}
        self.name, self.text, self.others = name, repr(module), frozenset(dir(module))
        self.members = {n: v for n, v in found.items() if not isinstance(v, (type, types.ModuleType))}

    def __repr__(self):
        return self.text


Kind.__name__, Library.__name__ = "type", "module"  # for messages
Kind.__module__ = "builtins"


def type_of(value):
    kind = type(value)
    if value is builtins.print:  # which the driver may have replaced
        kind = types.BuiltinFunctionType
    return Kind.of({Kind: type, Library: types.ModuleType}.get(kind, kind))


def attribute(value, name):
    """Returns an attribute of a value. It is the only way to get one."""
    kind = type(value)
    if kind is Library:
        if name in value.members:
            return value.members[name]
        if name not in value.others:
            raise AttributeError(f"module {value.name!r} has no attribute {name!r}")
        raise Refused(f"{value.name}.{name} is not available in the sandbox restricted")
    real = value.kind if kind is Kind else value
    if name in METHODS.get(value if kind is type else kind, ()):
        return getattr(value, name)
    if name == "__name__" and isinstance(real, type):
        return real.__name__
    if name == "args" and issubclass(kind, BaseException):
        return value.args
    if not hasattr(real, name):
        return getattr(real, name)  # which raises Python's own error
    raise Refused(f"the attribute {name!r} of {type(real).__name__!r} is not available in the sandbox restricted")


class Builtins(dict):
    """The builtins of the code. Python looks here for a name that is nowhere else."""

    def __missing__(self, name):
        if name in EXCEPTIONS:
            raise Refused(f"{name} is available for raise and except only in the sandbox restricted")
        if hasattr(builtins, name):
            raise Refused(f"{name} is not available in the sandbox restricted")
        raise KeyError(name)


PATTERNS = [kind.__name__ for kind in METHODS]

# Names that no code can have.
ATTRIBUTE = "<attribute>"
CATCHES = {**EXCEPTIONS, "BaseException": Exception}  # an interrupt of the call is no exception of the code
SAFE = {
    **{name: getattr(builtins, name) for name in BUILTINS}, "type": Kind.of(type), ATTRIBUTE: attribute,
    **{f"<{name}>": kind for name, kind in CATCHES.items()},
}


def check(tree):
    """Refuses what the sandbox doesn't have, and changes the tree: attributes become calls, and the
    exceptions of raise and except become names of EXCEPTIONS. It doesn't recurse, since
    Python compiles deeper trees than a function can visit."""
    left = [tree]
    while left:
        node = left.pop()
        check_node(node)
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                value[:] = [exchanged(item) for item in value]
                left += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                setattr(node, field, exchanged(value))
                left.append(getattr(node, field))


def check_node(node):
    name, line = type(node).__name__, getattr(node, "lineno", None)
    if name not in NODES and not isinstance(node, (ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context)):
        raise Refused(f"{WORDS.get(name, name)} is not available in the sandbox restricted", line)
    if getattr(node, "is_async", 0):
        raise Refused("async for is not available in the sandbox restricted", line)
    for word in names_of(node):
        if word.startswith("__") and word.endswith("__"):
            raise Refused(f"{word} is not available in the sandbox restricted", line)
        if word in CATCHES and not (name == "Name" and isinstance(node.ctx, ast.Load)):
            raise Refused(f"{word} can't be given another meaning in the sandbox restricted", line)
    if name == "Attribute":  # check has changed those that are read
        raise Refused("attributes can't be assigned or deleted in the sandbox restricted", line)
    if name in ("MatchValue", "MatchMapping") and any(isinstance(part, ast.Attribute) for part in ast.iter_child_nodes(node)):
        raise Refused("a pattern can't have an attribute in the sandbox restricted", line)
    if name == "MatchClass" and (node.kwd_attrs or getattr(node.cls, "id", "") not in PATTERNS):
        raise Refused("a pattern with a class can only be like int() or str(x) in the sandbox restricted", line)
    if name == "Raise":
        node.exc, node.cause = raised(node.exc), raised(node.cause)
    if name == "ExceptHandler":
        kinds = getattr(node.type, "elts", None)
        if kinds is not None:
            kinds[:] = [exception(kind, CATCHES) for kind in kinds]
        else:
            node.type = exception(node.type or ast.copy_location(ast.Name("BaseException", ast.Load()), node), CATCHES)


def names_of(node):
    """Returns the names that a node reads or sets; a keyword of a call is none."""
    found = [getattr(node, field, None) for field in ("id", "name", "rest")]
    found += getattr(node, "names", [])
    if isinstance(node, ast.arg):
        found.append(node.arg)
    return [name for name in found if isinstance(name, str)]


def exchanged(node):
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return node
    if node.attr.startswith("_") and node.attr != "__name__":
        raise Refused(f"the attribute {node.attr!r} is not available in the sandbox restricted", node.lineno)
    function, name = ast.Name(ATTRIBUTE, ast.Load()), ast.Constant(node.attr)
    call = ast.Call(function, [node.value, name], [])
    for new in (function, name, call):
        ast.copy_location(new, node)
    return call


def raised(node):
    """Returns what is raised, or its cause, with the exception that it names."""
    if isinstance(node, ast.Call):
        node.func = exception(node.func, EXCEPTIONS)
        return node
    return exception(node, EXCEPTIONS)


def exception(node, known):
    if isinstance(node, ast.Name) and node.id in known:
        node.id = f"<{node.id}>"
    return node


class Restricted:
    """The restricted namespace; one lives as long as its names are kept."""

    formatter = None

    def __init__(self, workspace):
        self.names = {"__name__": "__main__", **workspace.helpers(), "math": Library("math"), "statistics": Library("statistics")}
        self.hidden = dict(self.names)
        self.filename = "<code>"
        self.display = None  # the session's, of a call

    def run(self, code, filename):
        Refused.latest = None
        remember_source(code, filename)
        self.filename = filename
        tree, more = parsed(code, filename)
        if more:
            raise SyntaxError(NO_NOTEBOOK)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, filename, "exec", dont_inherit=True)  # errors in the code itself; never run
        for name in self.names:
            if name in CATCHES:
                raise Refused(f"{name} can't be given another meaning in the sandbox restricted")
        check(tree)
        self.names["__builtins__"] = Builtins(SAFE, print=builtins.print)
        try:
            return self.value(tree, filename)
        finally:
            if Refused.latest is not None:
                raise Refused.latest from None

    def value(self, tree, filename):
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, filename, "exec", dont_inherit=True), self.names)
        return None if last is None else eval(compile(ast.Expression(last.value), filename, "eval", dont_inherit=True), self.names)

    def keep(self, value):
        """This namespace has no name _."""

    def visible(self):
        return {n: v for n, v in self.names.items() if not isinstance(v, (Library, Kind))}

    def explain(self, problem, code):
        """Returns the error once: the innermost line of the code, and the exception."""
        text = "".join(traceback.format_exception_only(type(problem), problem))
        if isinstance(problem, SyntaxError):
            return text
        where, number = self.filename, getattr(problem, "line", None)
        for frame, line in traceback.walk_tb(problem.__traceback__):
            if frame.f_code.co_filename.startswith("<code"):
                where, number = frame.f_code.co_filename, line
        line = number and linecache.getline(where, number).strip()
        if not line:
            return text
        where = "<code>" if where == self.filename else where
        return f'  File "{where}", line {number}\n    {cut(line, 200)}\n{text}'
