# The form of values outside of the sandbox: their repr, or their JSON text, never longer than a result may be. The
# parts of the driver are joined into one program, in the order of their names.

import json
import types

CUT = "..."
RAISED = (Exception, SystemExit, GeneratorExit)  # exceptions of a value's methods, without the interrupt of a call
TEXT_CHARS = 4096
GLOBALS_CHARS = 32 * 1024
NAMES_LISTED, NAME_CHARS = 20, 80  # of the globals without room
HIDDEN = (
    types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, type,
)


class TooLong(Exception):
    """A value whose JSON text is too long for a result."""


class NotJSON(Exception):
    """A value that JSON can't hold."""


def cut(text, limit=TEXT_CHARS):
    return text if len(text) <= limit else text[: limit - len(CUT)] + CUT


BRACKETS = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}"), set: ("{", "}"), frozenset: ("frozenset({", "})")}


def short_repr(value, limit=TEXT_CHARS):
    """Returns a cut repr. It reads only the visible part of huge builtins, nested ones too.
    It doesn't recurse: a value may be as deep as its text is long."""
    pieces, left, inside = [], limit, set()
    open_parts = [_parts(value, limit, inside)]
    while open_parts and left >= 0:
        part = next(open_parts[-1], None)
        if part is None:
            open_parts.pop()
        elif type(part) is str:
            pieces.append(part)
            left -= len(part)
        else:
            open_parts.append(_parts(part[0], limit, inside))
    return cut("".join(pieces), limit)


def _parts(value, limit, inside):
    """Yields the texts of a value's repr, and its nested values as tuples of one."""
    kind = type(value)
    if kind in (str, bytes, bytearray):
        yield repr(value[:limit])
        return
    if kind not in BRACKETS or not value:
        yield repr(value)
        return
    begin, end = BRACKETS[kind]
    if id(value) in inside:
        yield begin + CUT + end
        return
    inside.add(id(value))
    yield begin
    for i, item in enumerate(value.items() if kind is dict else value):
        if i:
            yield ", "
        if kind is dict:
            yield (item[0],)
            yield ": "
            yield (item[1],)
        else:
            yield (item,)
    yield ",)" if kind is tuple and len(value) == 1 else end
    inside.discard(id(value))


class JSONText:
    """Writes JSON text piece by piece and stops at its limit, so that a huge
    value costs no more than a small one. Only str keys, no NaN: values
    that were given as JSON are returned equal, and values that would change are refused."""

    def __init__(self, limit):
        self.left = limit
        self.pieces = []
        self.inside = set()

    def put(self, text):
        self.left -= len(text)
        if self.left < 0:
            raise TooLong
        self.pieces.append(text)

    def value(self, value):
        if isinstance(value, (list, tuple)):
            self.nested(value, self.items)
        elif isinstance(value, dict):
            self.nested(value, self.members)
        else:
            self.put(self.scalar(value))

    def scalar(self, value):
        if value is None or isinstance(value, (bool, float)):
            return json.dumps(value, allow_nan=False)
        if isinstance(value, int):
            if value.bit_length() > 4 * self.left:
                raise TooLong
            return int.__repr__(value)
        if isinstance(value, str):
            return self.string(value)
        raise NotJSON

    def string(self, value):
        if len(value) > self.left:
            raise TooLong
        text = json.dumps(value, ensure_ascii=False)
        try:
            text.encode()
        except UnicodeEncodeError:  # a lone surrogate can only be sent as an escape
            return json.dumps(value)
        return text

    def nested(self, value, write):
        if id(value) in self.inside:
            raise NotJSON
        self.inside.add(id(value))
        write(value)
        self.inside.discard(id(value))

    def items(self, value):
        self.put("[")
        for i, item in enumerate(value):
            self.put(", " if i else "")
            self.value(item)
        self.put("]")

    def members(self, value):
        self.put("{")
        for i, (name, member) in enumerate(value.items()):
            self.put(", " if i else "")
            self.put(self.string(self.key(name)) + ": ")
            self.value(member)
        self.put("}")

    def key(self, name):
        if not isinstance(name, str):
            raise NotJSON
        return name


def global_text(value):
    """Returns the text of one global, None if its JSON is too long."""
    writer = JSONText(TEXT_CHARS)
    try:
        writer.value(value)
        return "".join(writer.pieces)
    except TooLong:
        return None
    except RAISED:  # its methods failed: it is not JSON
        pass
    return repr_text(value)


def repr_text(value):
    try:
        return "!repr:" + short_repr(value, TEXT_CHARS - len("!repr:"))
    except RAISED as problem:
        return f"!repr:<{type(value).__name__} object; its repr raised {type(problem).__name__}>"


def global_texts(namespace, hidden):
    """Returns the globals of a result, the number of those without room, and the first of their
    names. Values that are cut get the room that the others leave. hidden has the names and
    values from before the code ran."""
    texts, long, without, left = {}, {}, [], GLOBALS_CHARS
    for name, value in list(namespace.items()):
        if type(name) is not str or name.startswith("_") or isinstance(value, HIDDEN):
            continue
        if name in hidden and hidden[name] is value:
            continue
        text = global_text(value) if len(name) <= left else ""
        if text is None:
            long[name] = value
        elif len(name) + len(text) > left:
            without.append(name)
        else:
            left -= len(name) + len(text)
            texts[name] = text
    for name, value in long.items():
        text = repr_text(value) if len(name) + TEXT_CHARS <= left else ""
        if not text:
            without.append(name)
            continue
        left -= len(name) + len(text)
        texts[name] = text
    return texts, len(without), [cut(name, NAME_CHARS) for name in without[:NAMES_LISTED]]
