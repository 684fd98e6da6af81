"""Random plain Python, answered by CPython alone or by the driver.

    plain.py SEED COUNT             a line of JSON for each snippet: what CPython answers
    plain.py SEED COUNT DRIVER.py   what the driver answers; and for some, that it changes
                                    neither them nor a line of them around a magic
"""

import ast
import contextlib
import io
import json
import random
import re
import sys

CHECKED_EACH = 5  # the checks cost more than the answers
STRINGS = (
    '"!ls"', "'%time a'", '"a?"', "'''\n!ls\n%cd /\na?\n?a\n'''", 'f"{a!r}|{b % 7}"', "f'{a:>4}' '?'", '"%d%%" % a', r'r"\!%time"', '"x = !ls"',
    '"""\n    %%time\nx = %pwd\n"""', "'it\\'s ! 50%'", "'a\\\n!ls'", "f'''{\na\n}\n!x\n'''", "'#!'", '"é?"', "str(b'!x')", '"["', "')'", "'\"\"\"'",
)
COMMENTS = ("# !ls", "# a?", "#%time", "#", "# it's \"\"\" open", "# x = !ls")
NUMBERS = (
    "§a", "§c", "§n + §n", "(§n) * (§n)", "(§n\n  % §n)", "(§n) % \\\n  (§n)", "[§n\n%a][0]", "(§n != §n)", "(§n if §n else a)", "len(§t)", "(lambda x: x!=§n)(§n)",
    "sum([§n, §n])", "(y := §n)", "-(§n)", "max((§n), 2,\n\n   # !ls\n   key=str)", "{1: §n}.get(1)", "(§n\n!= §n)",
)
VALUES = (
    "§n", "§n", "§n", "§t", "[§n, §t]", "{§t: §n}", "[i % 3 for i in range(§c)]", "print(§t)", "(§n,)", "sorted(str(§n))", "§t.split()", "(§n\n)",
)
# A statement is its logical lines, each with its depth; "§" alone is a block.
SIMPLE = tuple(((0, line),) for line in (
    "§a = §v", "§a = §v  §h", "§a %= §c", "print(§v, §t)", "§a, e = §n, §v", "§a: int = §n; e = §t", "§a = e = §v", "assert §a != §t or 1, §t", "§v", "§h", "", "  ", "import math; math.floor(§a)",
))
COMPOUND = (
    ((0, "if §n:"), (1, "§"), (0, "else:"), (1, "§")),
    ((0, "for i in range(3):"), (1, "§"), (1, "if i != 1: continue"), (0, "\t"), (1, "break")),
    ((0, "def f(x, *, y=2):"), (1, "§t"), (1, "§"), (1, "return x"), (0, "print(f(a))")),
    ((0, "class K:"), (1, "§t"), (1, "at = §n"), (0, "print(K.at)")),
    ((0, "try:"), (1, "§"), (0, "except (TypeError, ValueError) as problem:"), (1, "print(problem)"), (0, "finally:"), (1, "pass")),
    ((0, "while §a:"), (1, "§"), (1, "break")),
    ((0, "@(lambda f: f)"), (0, "def g():"), (1, "global a"), (1, "a = §n"), (0, "g()")),
    ((0, "with __import__('contextlib').suppress(Exception):"), (1, "§")),
    ((0, "async def h():"), (1, "return §n"), (0, "h().close()")),
)


class Writer:
    def __init__(self, seed):
        self.pick = random.Random(seed)

    def filled(self, template, depth=3):
        """The template with something for each of its marks."""
        numbers = NUMBERS if depth else NUMBERS[:2]
        choices = {
            "a": lambda: self.pick.choice("abcd"), "c": lambda: self.pick.choice(("1", "2", "7", "0x1F", "5")), "h": lambda: self.pick.choice(COMMENTS),
            "n": lambda: self.filled(self.pick.choice(numbers), max(depth - 1, 0)), "t": lambda: self.pick.choice(STRINGS), "v": lambda: self.filled(self.pick.choice(VALUES), depth),
        }
        return re.sub("§([acnthv])", lambda mark: choices[mark[1]](), template)

    def statement(self, depth=2):
        lines = []
        for column, line in self.pick.choice(COMPOUND if depth and self.pick.random() < 0.4 else SIMPLE):
            if line != "§":
                lines.append((column, self.filled(line)))
                continue
            for _ in range(self.pick.randint(0, 2)):
                lines += [(column + inner, text) for inner, text in self.statement(depth - 1)]
            lines.append((column, "pass"))
        return lines

    def snippet(self):
        lines = [[(0, "a, b, c, d, e = 1, 2, 3, 4, 5")]] + [self.statement() for _ in range(self.pick.randint(0, 4))]
        return lines, self.filled(self.pick.choice(VALUES)) if self.pick.random() < 0.7 else "None"


def rendered(statements, right=0):
    """The text of statements; what goes on in a string or in brackets is not moved."""
    return "\n".join("    " * (column + right) + text for lines in statements for column, text in lines)


def answer(run):
    out, value, error = io.StringIO(), None, None
    names = {"__name__": "__main__"}
    with contextlib.redirect_stdout(out):
        try:
            value = run(names)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
    shown = {n: repr(names.get(n)) for n in "abcdey"}
    return {"value": None if value is None else repr(value), "error": error, "stdout": out.getvalue(), "names": shown}


def by_cpython(statements, last):
    def run(names):
        exec(compile(rendered(statements) + "\n", "<code>", "exec"), names)
        return eval(last, names)

    return run


def by_driver(driver, statements, last):
    def run(names):
        space.names = names
        return space.run(rendered(statements + [[(0, last)]]), "<code>")

    space = driver["Plain"](driver["Workspace"]("/"))
    sys.meta_path.pop(0)
    return run


def check(driver, statements, last, pick):
    """That nothing of Python is touched, whatever stands around it."""
    statements = statements + [[(0, last)]]
    code = rendered(statements)
    tree, more = driver["parsed"](code, "<code>")
    assert not more and ast.dump(tree, include_attributes=True) == ast.dump(ast.parse(code, "<code>"), include_attributes=True), code
    assert driver["translated"](code) == code, code
    at = pick.randint(0, len(statements))
    magic = pick.choice(("!ls 'it", "%time a", "a?", "??len", "e = !echo [", "e = %pwd", "!!x", "%pip install \"q"))
    before, after = rendered(statements[:at]), rendered(statements[at:])
    text = driver["translated"]("\n".join((before, magic, after)))
    assert text.startswith(before + "\n") and text.endswith("\n" + after), (before, magic, after, text)
    middle = text[len(before) + 1 : len(text) - len(after) - 1]
    assert "__wisbox__." in middle and "\n" not in middle and middle != magic, middle
    ast.parse(text)
    moved = rendered(statements, 1)
    tree, _ = driver["parsed"](moved, "<code>")
    assert ast.dump(tree) == ast.dump(ast.parse(code)), moved


def main(seed, count, path=None):
    driver = {"__name__": "driver"}
    if path:
        with open(path, encoding="utf-8") as file:
            exec(compile(file.read(), path, "exec"), driver)
    writer, pick = Writer(seed), random.Random(seed)
    for number in range(count):
        statements, last = writer.snippet()
        if path and number % CHECKED_EACH == 0:
            check(driver, statements, last, pick)
        run = by_driver(driver, statements, last) if path else by_cpython(statements, last)
        print(json.dumps({"code": rendered(statements + [[(0, last)]]), **answer(run)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
