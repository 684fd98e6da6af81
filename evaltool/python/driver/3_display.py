# The displays of a notebook: the arguments of display(), the final value, and figures. One object is one result; its
# texts and pictures are items, to which results refer by index, so that no picture is sent twice.

import base64
import io
import re
import sys

DISPLAY_BYTES = 4 << 20  # of one item in a message
DISPLAY_TOTAL = 8 << 20
DISPLAY_ITEMS = 32  # items, and results
MIME = re.compile("[a-z]+/[A-Za-z0-9.+_-]{1,80}")
METHODS_OF_MIME = (
    ("text/html", "_repr_html_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("image/svg+xml", "_repr_svg_"),
    ("application/pdf", "_repr_pdf_"),
    ("text/latex", "_repr_latex_"),
    ("text/markdown", "_repr_markdown_"),
    ("application/javascript", "_repr_javascript_"),
    ("application/json", "_repr_json_"),
)


PLAIN = {type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset}  # have no displays


class Display:
    """Collects the displays that fit; dropped counts the rest."""

    def __init__(self, formatter=None):
        self.formatter = formatter  # IPython's, used instead of the object's own methods
        self.tell = None  # gets each result at once
        self.items = []
        self.results = []
        self.dropped = 0
        self.left = DISPLAY_TOTAL
        self.pictured = None  # the figure that is the final value

    def add(self, mime, data):
        """Adds one text or picture; returns its index, None if it doesn't fit."""
        text = as_text(mime, data)
        if text is None:
            self.dropped += data is not None and mime.endswith("json")
            return None
        size = len(text)
        if not MIME.fullmatch(mime):
            self.dropped += 1
            return None
        if size <= DISPLAY_BYTES:
            size = len(text.encode("utf-8", "surrogatepass"))
        if size > DISPLAY_BYTES or size > self.left or len(self.items) >= DISPLAY_ITEMS:
            self.dropped += 1
            return None
        self.left -= size
        self.items.append({"mime": mime, "data": text})
        return len(self.items) - 1

    def value(self, value):
        """Shows the final value; returns its text."""
        if self.formatter is not None:
            entries = self.formatter.format(value)[0]
            return self.raw(entries, value, main=True) if entries else guarded_repr(value)
        text = short_repr(value)
        self.show(value, text)
        return text

    def show(self, value, text=None):
        """Shows an object that the code displays. If text is given, it is the final
        value, the main result."""
        if len(self.results) >= DISPLAY_ITEMS:
            self.dropped += 1
            return
        main, rich = text is not None, shows_itself(value)
        if rich and shown_by_itself(value):
            return
        if main and is_figure(value):
            self.pictured = value
        entries = self.entries(value) if rich else {}
        plain = entries.pop("text/plain", None)
        if not main:
            text = cut(plain) if isinstance(plain, str) else guarded_repr(value)
        result = self.result(text, entries, main)
        if rich:
            self.details(result, value)
        self.told(result, value)

    def told(self, result, value=None):
        """Sends a result to the reader, with the texts and pictures in it."""
        tell = self.tell
        if tell is None:
            return
        whole = {**result, "display": [self.items[i] for i in result["display"]]}
        text = json_of(value) if isinstance(value, (dict, list)) else None
        if text is not None:
            whole["json"] = text
        tell(whole)

    def result(self, text, entries, main=False):
        found = [self.add(mime, data) for mime, data in entries.items()]
        result = {"main": main, "text": text, "display": [i for i in found if i is not None]}
        self.results.append(result)
        return result

    def entries(self, value):
        """Returns the results of the value's display methods, by type."""
        if is_figure(value):
            return {"image/png": png_of(value)}
        found = bundle(value)
        for mime, method in METHODS_OF_MIME:
            if mime not in found:
                found[mime] = first(call(value, method))
        return with_table(value, found)

    def details(self, result, value):
        """Returns the data that programs read instead of pictures and tables."""
        for name, text in (("data", frame_data(value)), ("chart", chart_data(value))):
            if text is not None and len(text) > self.left:
                self.dropped += 1
            elif text is not None:
                self.left -= len(text)
                result[name] = text

    def raw(self, entries, value=None, main=False):
        """Shows types and data that the code itself provides, or that represent a
        value; returns the text."""
        entries = {mime: data for mime, data in entries.items() if isinstance(mime, str)}
        plain = entries.pop("text/plain", None)
        text = cut(plain) if isinstance(plain, str) else "" if value is None else guarded_repr(value)
        if len(self.results) >= DISPLAY_ITEMS:
            self.dropped += 1
            return text
        if main and is_figure(value):
            self.pictured = value
        result = self.result(text, entries, main)
        if value is not None and shows_itself(value):
            self.details(result, value)
        self.told(result, value)
        return text

    def figures(self):
        """Shows every open matplotlib figure and closes it, as notebooks do."""
        plt = sys.modules.get("matplotlib.pyplot")
        if plt is None:
            return
        for number in plt.get_fignums():
            figure = plt.figure(number)
            if figure is self.pictured:
                continue
            if len(self.results) >= DISPLAY_ITEMS:
                self.dropped += 1
                continue
            result = self.result(guarded_repr(figure), {"image/png": png_of(figure)})
            self.details(result, figure)
            self.told(result)
        plt.close("all")

    def answer(self):
        """Returns the message. A final value that has only a text is not a separate result
        if nothing else was shown. Threads may still show objects, but these are too late."""
        results = list(self.results)[:DISPLAY_ITEMS]
        items = list(self.items)[:DISPLAY_ITEMS]
        if all(r["main"] and not (r["display"] or "data" in r or "chart" in r) for r in results):
            results = []
        results = [{**r, "display": [i for i in r["display"] if i < len(items)]} for r in results]
        return {"display": items, "results": results, "display_dropped": self.dropped}


def with_table(value, entries):
    """Returns a pandas table as JSON too."""
    if from_library(value, "pandas") and entries.get("application/json") is None:
        entries["application/json"] = call(value, "to_json", orient="split")
    return entries


def shows_itself(value):
    """Reports whether a value may have more displays than its text."""
    return not (type(value) in PLAIN or isinstance(value, type) or answers_anything(value))


def shown_by_itself(value):
    """An object may display something else in its place."""
    try:
        method = getattr(value, "_ipython_display_", None)
        if not callable(method):
            return False
        method()
        return True
    except RAISED:
        return False


def bundle(value):
    """Returns the _repr_mimebundle_ of the value."""
    entries = first(call(value, "_repr_mimebundle_", include=None, exclude=None) or call(value, "_repr_mimebundle_"))
    if not isinstance(entries, dict):
        return {}
    return {mime: data for mime, data in entries.items() if isinstance(mime, str)}


def guarded_repr(value):
    try:
        return short_repr(value)
    except RAISED as problem:
        return f"<{type(value).__name__} object; its repr raised {type(problem).__name__}>"


def call(value, method, **options):
    """Returns the result of the method, or None: a display that raises doesn't end the code."""
    try:
        found = getattr(value, method, None)
        return found(**options) if callable(found) else None
    except RAISED:
        return None


def first(answer):
    """An answer may come as (data, metadata)."""
    return answer[0] if isinstance(answer, tuple) and answer else answer


def answers_anything(value):
    """Reports whether the object claims to have every attribute, as mocks do."""
    try:
        return hasattr(value, "_wisbox_no_such_method_")
    except RAISED:
        return True


def as_text(mime, data):
    """Returns bytes as base64, JSON as its text, and None for others. It doesn't encode
    data that is too long already."""
    if isinstance(data, (bytes, bytearray)):
        return base64.b64encode(data[:DISPLAY_BYTES]).decode()
    if data is None or isinstance(data, str):
        return data
    if mime.endswith("json"):
        return json_of(data, DISPLAY_BYTES)
    return None


def displayer(space):
    def display(*objects, raw=False, **options):
        """Show objects among the results, as notebooks do; with raw each is a dict
        of types and their data."""
        for value in objects:
            if raw and isinstance(value, dict):
                space.display.raw(value)
            else:
                space.display.show(value)

    display.__qualname__ = "display"
    return display


class PlotFinder:
    """Replaces pyplot's show when pyplot is imported. As a finder it finds nothing itself."""

    def __init__(self, space):
        self.space = space
        self.busy = False

    def find_spec(self, name, path=None, target=None):
        if name != "matplotlib.pyplot" or self.busy:
            return None
        import importlib.util

        self.busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.busy = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader.exec_module = self.with_show(spec.loader.exec_module)
        return spec

    def with_show(self, execute):
        def show(*args, **options):
            """Show the open figures among the results, and close them."""
            self.space.display.figures()

        def exec_module(module):
            execute(module)
            module.show = show

        return exec_module
