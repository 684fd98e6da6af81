# Compares the restricted sandbox with Python itself: python3 differential.py DRIVER COUNT SEED writes a line for each generated
# snippet whose outcome differs, and at the end how many snippets had which kind of outcome. A snippet is a whole
# program; its outcome is what it prints, its value, its names, and the class and text of its exception. It may
# be refused, but only by the sandbox's own exception.

import ast
import contextlib
import io
import math
import random
import re
import statistics
import sys
import warnings

warnings.simplefilter("ignore", SyntaxWarning)


class Snippet:
    """A random program. Numbers and collections stay small, and loops short."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines, self.depth, self.names, self.functions = [], 0, 0, []
        self.inside, self.looping = 0, 0

    def pick(self, *options):
        return self.random.choice(options)

    def chance(self, percent):
        return self.random.randrange(100) < percent

    def number(self):
        return self.random.randrange(-3, 9)

    def fresh(self, kind):
        self.names += 1
        return f"{kind}{self.names}"

    def var(self, kind):
        return kind + self.pick("0", "1", "2")

    def line(self, text):
        self.lines.append("    " * self.depth + text)

    # Expressions, by the kind of their value: i number, l list, d dict of numbers, s text, q set, b truth.

    def expr(self, kind, depth=2):
        if self.chance(2):
            kind = self.pick(*"ildsqb")
        if depth <= 0 or self.chance(15):
            return self.leaf(kind)
        return getattr(self, "make_" + kind)(depth - 1)

    def leaf(self, kind):
        if kind != "b" and self.chance(60):
            return self.var(kind)
        n = self.number
        return {
            "i": lambda: self.pick(str(n()), "True", "len(l0)", "2.5"),
            "l": lambda: self.pick("[]", f"[{n()}, {n()}]", f"list(range({abs(n()) % 4}))"),
            "d": lambda: self.pick("{}", f"{{'a': {n()}}}", f"{{'b': {n()}, 'c': {n()}}}", "dict(a=1, b=2)"),
            "s": lambda: self.pick("''", "'ab'", "'x y'", "'é'"),
            "q": lambda: self.pick("set()", f"{{{n()}, {n()}}}", "frozenset([1])"),
            "b": lambda: self.pick("True", "False", "None", self.var("i"), self.var("l")),
        }[kind]()

    def make_i(self, d):
        e = self.expr
        choices = [
            lambda: f"({e('i', d)} {self.pick('+', '-', '%', '//', '&', '|', '^')} {e('i', d)})",
            lambda: f"({e('i', d)} * {e('i', d)} % 100)",
            lambda: f"{self.pick('-', '+', '~')}{e('i', d)}",
            lambda: f"{self.pick('len', 'sum', 'max', 'min')}({e('l', d)})",
            lambda: f"({e('i', d)} if {e('b', d)} else {e('i', d)})",
            lambda: f"{e('l', d)}[{e('i', d)}]",
            lambda: f"{e('d', d)}.get({e('s', d)}, {e('i', d)})",
            lambda: f"{e('d', d)}[{self.pick(repr('a'), repr('b'), e('s', d))}]",
            lambda: f"int({e('s', d)} or {self.number()})",
            lambda: f"abs({e('i', d)})",
            lambda: f"(lambda {self.pick('x', 'x, y=2', '*x', 'x, **y', 'x, /, y=1')}: {self.pick('1', e('i', d), 'len(str(x))')})({e('i', d)})",
            lambda: f"sum({self.pick('i', 'i * 2', 'tell(i)')} for i in {e('l', d)} if {self.pick('i', 'i % 2', 'True')})",
            lambda: f"next((i for i in {e('l', d)} if tell(i) {self.pick('>', '==', '<')} {e('i', d)}), {e('i', d)})",
            lambda: f"math.{self.pick('floor', 'ceil', 'fabs', 'isqrt', 'factorial')}(abs({e('i', d)}) % 9)",
            lambda: f"math.{self.pick('gcd', 'hypot', 'copysign')}({e('i', d)}, {e('i', d)})",
            lambda: f"statistics.{self.pick('mean', 'median', 'pstdev', 'mode', 'fmean')}({e('l', d)})",
            lambda: f"(n{self.number() % 3} := {e('i', d)})" if not self.comprehending else e("i", d),
            lambda: f"tell({e('i', d)})",
            lambda: f"{e('s', d)}.{self.pick('find', 'count', 'index')}({e('s', d)})",
            lambda: f"{e('l', d)}.{self.pick('index', 'count')}({e('i', d)})",
            lambda: f"divmod({e('i', d)}, {e('i', d)})[{self.pick('0', '-1')}]",
            lambda: f"[*{e('l', d)}, {e('i', d)}].pop()",
            lambda: f"round({e('i', d)}, {self.pick('1', 'None', '-1')})",
            lambda: self.call(d),
        ]
        return self.pick(*choices)()

    comprehending = 0

    def make_l(self, d):
        e = self.expr
        self.comprehending += 1  # a walrus there may rebind the iteration's name, a SyntaxError
        text = self.pick(
            lambda: f"({e('l', d)} + {e('l', d)})[:5]",
            lambda: f"{e('l', d)}[{self.slice(d)}]",
            lambda: f"[{self.pick('x', 'x * 2', 'tell(x)', e('i', d))} for x in {e('l', d)} if {self.pick('x', 'x > 1', 'True')}][:5]",
            lambda: f"[(x, y) for x in {e('l', d)} for y in {self.pick('l1', '[x]', 'range(2)')} if x != y][:3]",
            lambda: f"sorted({self.pick(e('l', d), e('q', d))}, key=lambda v: {self.pick('v', '-v', 'v % 3', 'str(v)')}, reverse={e('b', d)})",
            lambda: f"[*{self.pick(e('l', d), e('q', d), 'range(2)')}, *{e('l', d)}][:5]",
            lambda: f"list(map(lambda a: {self.pick('a', 'a + 1', 'tell(a)')}, {e('l', d)}))",
            lambda: f"list({self.pick('zip(l0, l1)', 'zip(range(3), l2)', 'map(max, l0, l1)')})",
            lambda: f"list(enumerate({e('l', d)}))[:3]",
            lambda: f"list(reversed({e('l', d)}))",
            lambda: f"list({e('d', d)}.{self.pick('values', 'keys', 'items')}())",
            lambda: f"list(filter({self.pick('None', 'lambda a: a > 1')}, {e('l', d)}))",
            lambda: f"[{e('i', d)}, {e('i', d)}]",
            lambda: f"[v for v in ({self.pick('v', 'tell(v)')} for v in {e('l', d)})][:4]",
            lambda: f"{e('s', d)}.split()",
            lambda: f"list({e('s', d)})[:4]",
            lambda: f"[[{e('i', d)}] * 2, *[{e('l', d)}]][:4]",
            lambda: f"({e('l', d)} {self.pick('and', 'or')} {e('l', d)})",
        )()
        self.comprehending -= 1
        return text

    def slice(self, d):
        part = lambda: self.pick("", self.expr("i", 0))
        return part() + ":" + part() + self.pick("", ":", ":2", ":-1")

    def make_d(self, d):
        e = self.expr
        self.comprehending += 1
        text = self.pick(
            lambda: f"{{**{e('d', d)}, 'b': {e('i', d)}}}",
            lambda: f"{{'a': {e('i', d)}, **{e('d', d)}}}",
            lambda: f"{{'a': tell({self.number()}), **tell({e('d', 0)}), 'c': tell({self.number()})}}",
            lambda: f"({e('d', d)} | {e('d', d)})",
            lambda: f"{{k: {self.pick('v', 'v * 2', 'tell(v)')} for k, v in {e('d', d)}.items() if {self.pick('v', 'k', 'k != ' + repr('a'))}}}",
            lambda: f"dict({self.pick('**', '')}{e('d', d)})",
            lambda: f"dict({e('d', d)}, z={e('i', d)})",
            lambda: f"dict(**{e('d', d)}, a={e('i', d)})",
            lambda: f"keywords(**{e('d', d)}, **{e('d', d)})",
            lambda: f"keywords(a={e('i', d)}, **{e('d', d)})",
            lambda: f"{{str(v): i for i, v in enumerate({e('l', d)})}}",
            lambda: f"dict.fromkeys({e('s', d)}, {e('i', d)})",
        )()
        self.comprehending -= 1
        return text

    def make_s(self, d):
        e = self.expr
        return self.pick(
            lambda: f"({e('s', d)} + {e('s', d)})[:9]",
            lambda: f"f'{{{self.field(d)}}}'",
            lambda: f"f'{{{self.field(d)}!{self.pick('r', 's', 'a')}}}-{{{self.field(0)}}}'",
            lambda: f"f'{{{e('i', 0)}:{self.pick('>5', '05', '+', 'x', '.2f', '{3}', '{len(l0)}')}}}'",
            lambda: f"{e('s', d)}.{self.pick('upper', 'strip', 'title', 'swapcase')}()",
            lambda: f"{e('s', d)}.{self.pick('ljust', 'zfill', 'center')}({self.pick('3', '5')})",
            lambda: f"{e('s', d)}.join(map(str, {e('l', d)}))[:9]",
            lambda: f"str({e(self.pick(*'ildqb'), d)})[:9]",
            lambda: f"repr({e(self.pick(*'ilds'), d)})[:9]",
            lambda: f"{e('s', d)}.replace({e('s', 0)}, 'z')[:9]",
            lambda: f"({e('s', d)} or {e('s', d)})",
            lambda: f"'%s %r' % ({e('i', d)}, {e('s', d)})",
            lambda: f"{e('s', d)}[{self.slice(d)}]",
            lambda: f"type({e(self.pick(*'ildsqb'), d)}).__name__",
            lambda: f"chr(97 + {e('i', d)} % 20)",
            lambda: f"format({e('i', d)}, {self.pick(repr('>4'), repr(''), repr('b'))})",
        )()

    def field(self, d):
        text = self.expr(self.pick(*"ils"), d)
        return "0" if any(c in text for c in "'\"{}:!\\") else text

    def make_q(self, d):
        e = self.expr
        return self.pick(
            lambda: f"({e('q', d)} {self.pick('|', '&', '-', '^')} {e('q', d)})",
            lambda: f"{{{self.pick('x', 'x % 2', 'tell(x)')} for x in {e('l', d)}}}",
            lambda: f"set({e('l', d)})",
            lambda: f"{{*{e('l', d)}, {e('i', d)}}}",
            lambda: f"{e('q', d)}.{self.pick('union', 'difference', 'intersection')}({e('l', d)})",
        )()

    def make_b(self, d):
        e = self.expr
        op = lambda: self.pick("<", "<=", "==", "!=", ">", ">=")
        return self.pick(
            lambda: f"{e('i', d)} {op()} {e('i', d)}",
            lambda: f"{e('i', d)} {op()} tell({e('i', d)}) {op()} tell({e('i', d)})",
            lambda: f"({e('b', d)} {self.pick('and', 'or')} {e('b', d)})",
            lambda: f"(not {e('b', d)})",
            lambda: f"{e('i', d)} {self.pick('in', 'not in')} {e(self.pick(*'lq'), d)}",
            lambda: f"({e(self.pick(*'ild'), d)} is {self.pick('not ', '')}{self.pick('None', 'l0', 'd0')})",
            lambda: f"isinstance({e(self.pick(*'ilds'), d)}, {self.pick('int', '(str, list)', 'type(None)', 'dict', 'type(l0)', 'int | str', 'type')})",
            lambda: f"{self.pick('any', 'all')}(tell(v) for v in {e('l', d)})",
            lambda: f"(type({e(self.pick(*'ilb'), d)}) {self.pick('is', '==', 'in')} {self.pick('int', '(list, int)', 'type(None)', 'type(1)')})",
            lambda: f"callable({self.pick('len', 'tell', 'l0', 'int', 'type(None)', 'math')})",
        )()

    def call(self, d):
        if not self.functions:
            return self.expr("i", d)
        name = self.pick(*self.functions)
        e = lambda: self.expr("i", d)
        args = self.pick(
            lambda: e(), lambda: f"{e()}, {e()}", lambda: f"*{self.expr('l', d)}", lambda: f"{e()}, b={e()}", lambda: f"b={e()}, a={e()}",
            lambda: f"{e()}, *[{e()}], c={e()}", lambda: f"{e()}, **{{'b': {e()}}}", lambda: f"**{{'a': 1}}, a={e()}", lambda: "", lambda: f"tell({e()}), *tell([{e()}])",
        )()
        return f"{name}({args})"

    # Statements.

    def block(self, count):
        self.depth += 1
        for _ in range(count):
            self.statement()
        self.depth -= 1

    def statement(self):
        options = [
            self.assign, self.assign, self.assign, self.augment, self.augment, self.subscript, self.method, self.unpack, self.show, self.delete,
            self.alias, self.check,
        ]
        if self.depth < 3:
            options += [self.choose, self.loop, self.loop, self.repeat, self.attempt, self.attempt, self.match]
        if self.depth < 2:
            options += [self.define, self.define]
        if self.inside:
            options += [self.leave, self.leave]
        if self.looping:
            options += [self.jump, self.jump]
        if self.chance(4):
            options = [self.fail]
        self.pick(*options)()

    def assign(self):
        kind = self.pick(*"ildsq")
        self.line(self.pick(
            f"{self.var(kind)} = {self.expr(kind)}", f"{self.var(kind)} = {self.var(kind)} = {self.expr(kind)}",
            f"{self.var(kind)}{self.pick('', ': int')} = {self.expr(kind)}",
        ))

    def alias(self):
        kind = self.pick(*"ldq")
        a, b = self.var(kind), self.var(kind)
        self.line(f"{a} = {b}")
        self.line({"l": f"{a} += [{self.number()}]", "d": f"{a} |= {{'n': {self.number()}}}", "q": f"{a} |= {{{self.number()}}}"}[kind])

    def augment(self):
        kind = self.pick(*"iildsq")
        target = self.pick(self.var(kind), self.var(kind), "[l0, l1][tell(1)]" if kind == "l" else self.var(kind))
        op, value = {
            "i": (self.pick("+=", "-=", "//=", "%=", "|=", "&=", "^="), self.expr("i")), "l": (self.pick("+="), f"{self.expr('l')}[:2]"),
            "d": ("|=", self.expr("d")), "s": ("+=", f"{self.expr('s')}[:2]"), "q": (self.pick("|=", "&=", "-=", "^="), self.expr("q")),
        }[kind]
        self.line(f"{target} {op} {value}")

    def subscript(self):
        self.line(self.pick(
            f"{self.var('d')}[{self.expr('s')}] = {self.expr('i')}", f"{self.var('l')}[{self.expr('i')}] = {self.expr('i')}",
            f"{self.var('l')}[{self.slice(1)}] = {self.expr('l')}[:3]", f"{self.var('d')}[tell('a')] += {self.expr('i')}",
            f"{self.var('l')}[tell(0)] {self.pick('+=', '-=', '|=')} tell({self.expr('i')})", f"tell({self.var('d')})[tell('b')] = tell({self.expr('i')})",
            f"d1[{self.expr('s')}], l1[tell(0)] = {self.expr('i')}, {self.expr('i')}", f"{self.var('d')}['t'] = t = {self.expr('i')}",
            f"t3 = ([1],); t3[0] += [{self.number()}]",
        ))

    def method(self):
        v, e = self.var, self.expr
        self.line(self.pick(
            f"{v('l')}.append({e('i')})", f"{v('l')}.insert({e('i')}, {e('i')})", f"{v('l')}.sort()", f"{v('l')}.reverse()", f"{v('l')}.pop()",
            f"{v('l')}.remove({e('i')})", f"{v('d')}.update({e('d')})", f"{v('d')}.setdefault({e('s')}, {e('i')})", f"{v('d')}.pop({e('s')}, None)",
            f"{v('q')}.add({e('i')})", f"{v('q')}.discard({e('i')})", f"{v('l')}.extend({e('l')}[:2])", f"{v('l')}.nope()", f"{v('l')}.clear()",
        ))

    def unpack(self):
        self.line(self.pick(
            f"i0, i1 = {self.expr('i')}, {self.expr('i')}", f"i0, i1 = i1, i0", f"i0, *l0 = {self.expr('l')}", f"*l1, i2 = {self.expr('l')}",
            f"i0, (i1, *l2) = {self.expr('i')}, {self.expr('l')}", f"i0, i1 = {self.expr('l')}", f"[i0, l0[tell(0)], *l1] = {self.expr('l')}",
            f"(i0, i1), i2 = tell([1, 2]), {self.expr('i')}", f"i0, *l1, i1 = {self.expr('l')}", "t0 = *l1, *l2",
        ))

    def show(self):
        self.line(f"print({self.expr(self.pick(*'ildsqb'))}{self.pick('', ', ' + self.expr('i'), ', sep=' + repr('-') + ', end=' + repr('.'), ', *' + self.var('l'))})")

    def delete(self):
        self.line(self.pick(
            f"del {self.var('l')}[{self.expr('i')}]", f"del {self.var('d')}[{self.expr('s')}]", f"del {self.var('l')}[{self.slice(1)}]", f"del {self.fresh('gone')}",
            "del n0", "del (l0[0], d0['a'])",
        ))

    def check(self):
        self.line(f"assert {self.expr('b')} or {self.pick('True', 'l0')}, {self.expr('s')}")

    def choose(self):
        self.line(f"if {self.expr('b')}:")
        self.block(self.pick(1, 2))
        if self.chance(30):
            self.line(f"elif {self.expr('b')}:")
            self.block(1)
        if self.chance(50):
            self.line("else:")
            self.block(self.pick(1, 2))

    def loop(self):
        self.line(self.pick(
            f"for i2 in {self.expr('l')}[:3]:", f"for i, v in enumerate({self.expr('l')}[:3]):", f"for i1 in range({self.pick(0, 2, 3)}):", f"for k in list({self.expr('d')})[:3]:",
            f"for l0[0] in range(2):", f"for a, *b in zip(l0[:2], l1, l2):", f"for d0[tell('q')] in (1, 2):", f"for i0 in (tell(v) for v in {self.expr('l')}[:2]):",
        ))
        self.body()

    def repeat(self):
        name = self.fresh("w")
        self.line(f"{name} = {self.pick(2, 3)}")
        self.line(f"while {name}{self.pick(' > 0', '', ' and ' + self.expr('b', 1))}:")
        self.depth += 1
        self.line(f"{name} -= 1")
        self.depth -= 1
        self.body()

    def body(self):
        self.looping += 1
        self.block(self.pick(1, 2, 3))
        self.looping -= 1
        if self.chance(30):
            self.line("else:")
            self.block(1)

    def jump(self):
        self.line(f"if {self.expr('b', 1)}: {self.pick('break', 'continue')}")

    def leave(self):
        text = self.pick("return", f"return {self.expr('i')}", f"return {self.expr('l')}")
        self.line(self.pick(text, f"if {self.expr('b', 1)}: {text}"))

    def fail(self):
        self.line(self.pick(
            f"raise ValueError({self.expr('s')})", "raise KeyError", f"raise RuntimeError({self.expr('i')}) from None", "raise", "raise 5", "1 / 0", "nope",
            "raise TypeError('a', 2)", "raise ValueError from KeyError('x')", "int('z')", "[][0]", "raise problem",
        ))

    def attempt(self):
        self.line("try:")
        self.block(self.pick(1, 2, 3))
        caught = self.chance(80)
        if caught:
            kinds = ["Exception", "(ValueError, TypeError)", "KeyError", "LookupError", "BaseException", "(IndexError, KeyError)", "ZeroDivisionError"]
            for kind in self.random.sample(kinds, self.pick(1, 1, 2)):
                self.line(f"except {kind}{self.pick('', ' as problem')}:")
                self.block(self.pick(1, 2))
                if self.chance(20):
                    self.depth += 1
                    self.line(self.pick("raise", "print(str(problem))", "print(problem.args)", "raise ValueError('again') from problem"))
                    self.depth -= 1
            if self.chance(20):
                self.line("except:")
                self.block(1)
            if self.chance(30):
                self.line("else:")
                self.block(1)
        if not caught or self.chance(40):
            self.line("finally:")
            self.block(self.pick(1, 2))

    def match(self):
        self.line(f"match {self.expr(self.pick(*'ild'))}:")
        self.depth += 1
        patterns = ["0 | 1", "int(x)", "[x, *_]", "[x, y]", "{'a': x, **rest}", "str()", "[]", "{}", "None", "-1", "list() as x", "float(x) | int(x)"]
        for pattern in self.random.sample(patterns, self.pick(1, 2, 3)):
            self.line(f"case {pattern}{self.pick('', ' if ' + self.expr('b', 1))}:")
            self.block(1)
        if self.chance(50):
            self.line("case _:")
            self.block(1)
        self.depth -= 1

    def define(self):
        name = self.fresh("f")
        if self.chance(15):
            self.line(f"@{self.pick('tell', 'wrap', 'lambda g: g')}")
        self.line(f"def {name}({self.pick('a', 'a, b=2', 'a=1, *b', 'a, b=tell(l0), **c', 'a, /, b=1, *, c=3', '*a, **b', 'a: int, b: list[int] = l1', 'a=[]')}){self.pick('', ' -> int')}:")
        self.depth += 1
        if self.chance(30):
            self.line(self.pick("global i0, l0", "global n0", "global i1, d1"))
        inner = self.chance(20)
        if inner:
            self.line("x = 1")
            self.line("def inner(v):")
            self.line("    nonlocal x")
            self.line(f"    x += {self.pick('v', 'a', '1', 'len(str(v))')}")
            self.line(f"    return {self.pick('x', '[x, v]', 'lambda: x')}")
            self.line("print(inner(1), inner(2), x)" if self.chance(50) else "inner(3)")
        self.depth -= 1
        looping, self.looping = self.looping, 0
        self.inside += 1
        known, self.functions = self.functions, list(self.functions)
        self.block(self.pick(1, 2, 3))
        self.depth += 1
        self.line(self.pick("return a", "return 1", f"return {self.expr('i')}", "return len(str(a))", "pass"))
        self.depth -= 1
        self.inside, self.looping, self.functions = self.inside - 1, looping, known
        if self.depth <= 1:
            self.functions.append(name)
            self.line(f"print({name}({self.pick('1', '1, 2', '1, b=3', '', '[1, 2]', '*l0', '**d0')}))")

    def text(self):
        self.lines = [
            "def tell(v):", "    print('tell', v)", "    return v",
            "def wrap(g): return lambda *p, **k: tell(g(*p, **k))", "def keywords(**k): return k",
        ]
        for n in "012":
            self.lines += [f"i{n} = n{n} = {n}", f"l{n} = [{n}, 5, 3]", f"d{n} = {{'a': {n}}}", f"s{n} = 't{n}'", f"q{n} = {{{n}, 7}}"]
        goes_on = self.chance(80)
        for _ in range(self.random.randrange(2, 10)):
            if goes_on and self.chance(80):
                self.line("try:")
                self.block(1)
                self.line("except Exception as e: print(type(e).__name__, e)")
            else:
                self.statement()
        self.line(self.pick("(i0, i1, l0, l1, l2, d0, d1)", self.expr(self.pick(*"ildsqb")), "None", "[q0, q1, s0, s1]"))
        return "\n".join(self.lines) + "\n"


def outcome(run, names):
    """Returns what a snippet did, as texts without addresses."""
    said, value, problem = io.StringIO(), None, ""
    with contextlib.redirect_stdout(said):
        try:
            value = run()
        except RecursionError:
            problem = "RecursionError"
        except BaseException as found:
            problem = f"{type(found).__name__}: {found}"
        final = {n: repr(v) for n, v in names().items() if not n.startswith("_") and n not in ("math", "statistics")}
    address = lambda text: re.sub(r"0x[0-9a-f]+", "0x", text)
    return [address(part) for part in (said.getvalue(), repr(value), problem, repr(final))]


def plainly(code):
    names = {"math": math, "statistics": statistics, "__name__": "__main__"}

    def run():
        tree = ast.parse(code, "<code>")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<code>", "exec", dont_inherit=True), names)
        return None if last is None else eval(compile(ast.Expression(last.value), "<code>", "eval", dont_inherit=True), names)

    return outcome(run, lambda: names)


class NoFiles:
    def helpers(self):
        return {}


def restrictedly(driver, code):
    space = driver["Restricted"](NoFiles())
    return outcome(lambda: space.run(code, "<code>"), lambda: space.names)


def main(path, count, seed):
    driver = {"__name__": "driver"}
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), "<wisbox>", "exec"), driver)
    tally = {}
    for number in range(count):
        code = Snippet(f"{seed}/{number}").text()
        want, got = plainly(code), restrictedly(driver, code)
        kind = "refused" if got[2].startswith("RestrictedError: ") else got[2].partition(":")[0] or "finished"
        tally[kind] = tally.get(kind, 0) + 1
        if got != want and kind != "refused":
            print(f"--- snippet {seed}/{number}\n{code}--- restricted\n{got}\n--- python\n{want}")
            tally["different"] = tally.get("different", 0) + 1
        elif kind == "refused":
            print("refused:", got[2])
    print(sorted(tally.items()))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
