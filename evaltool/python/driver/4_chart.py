# Tables and charts as data: the columns of a DataFrame, and the elements of a matplotlib figure. Objects are recognized
# by the names of their classes: nothing is imported that the code has not imported.

import math
import re

DATA_CHARS = 1 << 20  # of one table's or chart's JSON text
DATA_VALUES = 100_000
FLAT = "rectilinear"  # matplotlib's name of usual axes


class ShownJSON(JSONText):
    """Values that the code shows, for people and charts: what JSON lacks is written as the nearest that it has.
    Sets are lists, NaN and infinity null, and other values their texts."""

    def value(self, value):
        if isinstance(value, (set, frozenset)):
            self.nested(value, self.items)
        else:
            super().value(value)

    def scalar(self, value):
        return super().scalar(cell(value))

    def key(self, name):
        return name if isinstance(name, str) else cut(json.dumps(name) if name is None or isinstance(name, (bool, int)) else str(name))


def json_of(value, limit=DATA_CHARS):
    """Returns the JSON text of a value that is shown, None if it is too long or contains itself."""
    writer = ShownJSON(limit)
    try:
        writer.value(value)
        return "".join(writer.pieces)
    except (TooLong, *RAISED):
        return None
UNIT = re.compile(r"\s\(([^()]*)\)|\[([^\[\]]*)\]")


def classes(value):
    return {kind.__name__ for kind in type(value).__mro__}


def from_library(value, library):
    return any(str(kind.__module__).partition(".")[0] == library for kind in type(value).__mro__)


def is_figure(value):
    return "Figure" in classes(value) and from_library(value, "matplotlib") and callable(getattr(value, "savefig", None))


def png_of(figure):
    image = io.BytesIO()
    figure.savefig(image, format="png", bbox_inches="tight")
    return image.getvalue()


def frame_data(value):
    """Returns the JSON text of {column: [value, …]}, None if it isn't a DataFrame or is too large."""
    if "DataFrame" not in classes(value) or not from_library(value, "pandas"):
        return None
    return data_text(lambda: frame_columns(value))


def frame_columns(frame):
    if len(frame) * max(len(frame.columns), 1) > DATA_VALUES:
        raise TooLong
    return {str(name): [cell(v) for v in column] for name, column in frame.to_dict(orient="list").items()}


def chart_data(value):
    """Returns the JSON text of a figure's elements, None if it isn't a figure."""
    if not callable(getattr(value, "get_axes", None)) or "Figure" not in classes(value):
        return None
    return data_text(lambda: figure_chart(value))


def data_text(make):
    writer = JSONText(DATA_CHARS)
    try:
        found = make()
        if found is None:
            return None
        writer.value(found)
        return "".join(writer.pieces)
    except RAISED:  # the objects failed: there is still a picture or a table
        return None


def cell(value):
    """Returns a value for JSON: no NaN, times as ISO 8601."""
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        return value
    if type(value).__name__ == "MaskedConstant" or differs_from_itself(value):
        return None
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if callable(getattr(value, "isoformat", None)):
        return value.isoformat()
    if type(value).__name__ == "datetime64":
        return str(value)
    if callable(getattr(value, "item", None)) and getattr(value, "size", 1) == 1:
        single = value.item()
        return single if type(single) is type(value) else cell(single)
    return cut(str(value))


def differs_from_itself(value):
    try:
        return bool(value != value)
    except RAISED:  # an array has a result for each of its values
        return False


def few(values):
    if len(values) > DATA_VALUES:
        raise TooLong
    return values


def figure_chart(figure):
    axes = [ax for ax in figure.get_axes() if call(ax, "get_label") != "<colorbar>"]
    if not axes:
        return None
    if len(axes) == 1:
        return axes_chart(axes[0])
    title = call(figure, "get_suptitle") or call(getattr(figure, "_suptitle", None), "get_text") or None
    return {"type": "superchart", "title": title, "elements": [axes_chart(ax) for ax in axes]}


def axes_chart(ax):
    if getattr(ax, "name", FLAT) != FLAT:  # of three dimensions, or polar: its numbers are no x and y
        return {"type": "unknown", **described(ax), "elements": []}
    for kind, recognise in (("pie", pie), ("bar", bars), ("box_and_whisker", boxes), ("scatter", scatter), ("line", lines)):
        found = recognise(ax)
        if found is not None:
            return {"type": kind, **described(ax), **found}
    return {"type": "unknown", **described(ax), "elements": []}


def described(ax):
    x, y = ax.get_xlabel() or None, ax.get_ylabel() or None
    return {"title": ax.get_title() or None, "x_label": x, "y_label": y, "x_unit": unit(x), "y_unit": unit(y)}


def unit(label):
    found = UNIT.search(label or "")
    return (found.group(1) or found.group(2)) if found else None


def only(artists, kind):
    return bool(artists) and all(kind in classes(a) for a in artists)


def pie(ax):
    if not only(ax.patches, "Wedge"):
        return None
    return {"elements": [
        {"label": str(w.get_label()), "angle": cell(w.theta2 - w.theta1), "radius": cell(w.r)} for w in few(list(ax.patches))
    ], "x_label": None, "y_label": None, "x_unit": None, "y_unit": None}


def bars(ax):
    containers = [c for c in ax.containers if "BarContainer" in classes(c)]
    if not containers or not only(ax.patches, "Rectangle"):
        return None
    flat = getattr(containers[0], "orientation", None) == "horizontal"
    elements = []
    for number, container in enumerate(containers):
        group = str(container.get_label())
        group = f"Group {number}" if group.startswith("_") else group
        for bar in few(list(container)):
            elements.append({"label": bar_label(ax, bar, flat), "group": group, "value": cell(bar.get_width() if flat else bar.get_height())})
    if not flat:
        return {"elements": elements}
    turned = described(ax)
    return {"elements": elements, "x_label": turned["y_label"], "y_label": turned["x_label"], "x_unit": turned["y_unit"], "y_unit": turned["x_unit"]}


def bar_label(ax, bar, flat):
    start, size = (bar.get_y(), bar.get_height()) if flat else (bar.get_x(), bar.get_width())
    return tick_label(ax.get_yticks() if flat else ax.get_xticks(), ax.get_yticklabels() if flat else ax.get_xticklabels(), start, start + size)


def tick_label(ticks, labels, low, high):
    """Returns the label of the tick between two positions, or of the nearest one that isn't
    a number, as for grouped bars; otherwise the middle of the positions."""
    low, high = min(low, high), max(low, high)
    named = [(tick, label.get_text()) for tick, label in zip(few(ticks), labels) if label.get_text()]
    for tick, text in named:
        if low <= tick <= high:
            return text
    middle = (low + high) / 2
    words = [(abs(tick - middle), text) for tick, text in named if not is_number(text)]
    return min(words)[1] if words else f"{middle:g}"


def is_number(text):
    try:
        float(text.replace("\N{MINUS SIGN}", "-"))
        return True
    except ValueError:
        return False


def lines(ax):
    drawn = list(ax.lines)
    if not drawn or ax.patches or any("LineCollection" not in classes(c) for c in ax.collections):
        return None
    elements = []
    for number, line in enumerate(drawn):
        label = str(line.get_label())
        points = zip(few(line.get_xdata()), line.get_ydata())
        elements.append({"label": f"Line {number}" if label.startswith("_") else label, "points": [[cell(x), cell(y)] for x, y in points]})
    return {**scales(ax), "elements": elements}


def scatter(ax):
    if not only(ax.collections, "PathCollection") or ax.lines or ax.patches:
        return None
    return {**scales(ax), "elements": [
        {"label": str(c.get_label()), "points": [[cell(x), cell(y)] for x, y in few(c.get_offsets())]} for c in ax.collections
    ]}


def scales(ax):
    found = {}
    for name in ("x", "y"):
        labels = [label.get_text() for label in getattr(ax, f"get_{name}ticklabels")()]
        ticks = few(getattr(ax, f"get_{name}ticks")())
        found[f"{name}_tick_labels"] = labels
        found[f"{name}_scale"], found[f"{name}_ticks"] = scale_of(ax, name, ticks, labels)
    return found


def scale_of(ax, name, ticks, labels):
    axis = getattr(ax, f"{name}axis", None)
    converter = call(axis, "get_converter") or getattr(axis, "converter", None)
    if any("Date" in kind for kind in classes(converter)):
        return "datetime", [cell(sys.modules["matplotlib.dates"].num2date(tick)) for tick in ticks]
    ticks = [cell(tick) for tick in ticks]
    scale = str(getattr(ax, f"get_{name}scale")())
    if scale == "linear" and "StrCategoryConverter" in classes(converter):
        scale = "categorical"
    return scale, ticks


def boxes(ax):
    """Upright box plots: boxes, and the whiskers, medians and outliers around them."""
    rest = list(ax.lines)
    frames = list(ax.patches) if only(ax.patches, "PathPatch") else [line for line in rest if is_box(line)]
    if not frames or ax.collections:
        return None
    places = few([(line.get_xdata(), line.get_ydata()) for line in rest])
    elements = []
    for frame in frames:
        corners = frame.get_path().vertices
        element = box(ax, [c[0] for c in corners[:4]], [c[1] for c in corners[:4]], places)
        if element is None:
            return None
        elements.append(element)
    return {"elements": elements}


def is_box(line):
    xs, ys = list(line.get_xdata()), list(line.get_ydata())
    return len(xs) == 5 and (xs[0], ys[0]) == (xs[4], ys[4]) and len(set(xs)) == 2 and len(set(ys)) <= 2


def box(ax, xs, ys, places):
    left, right, low, high = min(xs), max(xs), min(ys), max(ys)
    ends, median, outliers = [], None, []
    for x, y in places:
        x, y = list(x), list(y)
        inside = [left <= place <= right for place in x]
        if not x or not all(inside) or len(x) == 5:
            continue
        if len(x) == 2 and x[0] == x[1]:
            ends += y
        elif len(x) == 2 and y[0] == y[1] and low <= y[0] <= high and x == [left, right]:
            median = y[0]
        elif len(set(x)) == 1:
            outliers += y
    if not ends or median is None:
        return None
    label = tick_label(ax.get_xticks(), ax.get_xticklabels(), left, right)
    return {
        "label": label, "min": cell(min(ends)), "first_quartile": cell(low), "median": cell(median),
        "third_quartile": cell(high), "max": cell(max(ends)), "outliers": [cell(v) for v in outliers],
    }
