# What a notebook would show for the final value and for open figures.

import base64
import io
import sys

DISPLAY_BYTES = 4 << 20  # of one item, as it is sent
DISPLAY_TOTAL = 8 << 20
DISPLAY_ITEMS = 32
METHODS_OF_MIME = (
    ("text/html", "_repr_html_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("image/svg+xml", "_repr_svg_"),
    ("text/latex", "_repr_latex_"),
    ("text/markdown", "_repr_markdown_"),
    ("application/json", "_repr_json_"),
)


PLAIN = {type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset}  # show nothing


class Display:
    """Collects what fits; dropped counts the rest."""

    def __init__(self):
        self.items = []
        self.dropped = 0
        self.left = DISPLAY_TOTAL

    def add(self, mime, data):
        text = as_text(mime, data)
        if text is None:
            return
        size = len(text.encode("utf-8", "replace"))
        if size > DISPLAY_BYTES or size > self.left or len(self.items) >= DISPLAY_ITEMS:
            self.dropped += 1
            return
        self.left -= size
        self.items.append({"mime": mime, "data": text})

    def value(self, value):
        if type(value) in PLAIN or isinstance(value, type) or answers_anything(value):
            return
        shown = self.bundle(value)
        for mime, method in METHODS_OF_MIME:
            if mime not in shown:
                self.add(mime, first(call(value, method)))
        if type(value).__module__.startswith("pandas.") and "application/json" not in shown:
            self.add("application/json", call(value, "to_json", orient="split"))

    def bundle(self, value):
        """The _repr_mimebundle_ of the value; returns the types that it had."""
        entries = first(call(value, "_repr_mimebundle_"))
        if not isinstance(entries, dict):
            return ()
        for mime, data in entries.items():
            if isinstance(mime, str) and mime != "text/plain":
                self.add(mime, data)
        return tuple(entries)

    def figures(self):
        """Every open matplotlib figure as PNG; they are closed, as notebooks do."""
        plt = sys.modules.get("matplotlib.pyplot")
        if plt is None:
            return
        for number in plt.get_fignums():
            image = io.BytesIO()
            plt.figure(number).savefig(image, format="png", bbox_inches="tight")
            self.add("image/png", image.getvalue())
        plt.close("all")


def call(value, method, **options):
    """What the method answers, or None: a display that raises ends nothing."""
    try:
        found = getattr(value, method, None)
        return found(**options) if callable(found) else None
    except RAISED:
        return None


def first(answer):
    """An answer may come as (data, metadata)."""
    return answer[0] if isinstance(answer, tuple) and answer else answer


def answers_anything(value):
    """Whether it has every attribute that one asks for, as mocks do."""
    try:
        return hasattr(value, "_wisbox_no_such_method_")
    except RAISED:
        return True


def as_text(mime, data):
    if isinstance(data, (bytes, bytearray)):
        return base64.b64encode(data).decode()
    if data is None or isinstance(data, str):
        return data
    if mime.endswith("json"):
        try:
            return json.dumps(data, allow_nan=False)
        except Exception:
            return None
    return None
