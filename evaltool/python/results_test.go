package python_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
)

// resultsOf returns the results as short lines: * marks the main one, followed by the text, the types and the data.
func resultsOf(resp evaltool.Response) []string {
	var out []string
	for _, r := range resp.Results {
		words := []string{r.Text}
		if r.Main {
			words[0] = "*" + r.Text
		}
		for _, i := range r.Display {
			words = append(words, resp.Display[i].MIME)
		}
		for name, data := range map[string][]byte{"data": r.Data, "chart": r.Chart} {
			if data != nil {
				words = append(words, name)
			}
		}
		out = append(out, strings.Join(words, " "))
	}
	return out
}

const shownClass = "class H:\n def __init__(s, n=''): s.n = n\n def __repr__(s): return 'H' + s.n\n def _repr_html_(s): return '<b>' + s.n\n"

func TestResultsAreListedInTheirOrder(t *testing.T) {
	b := newBench(t)
	b.keptCode(t, shownClass)
	for _, c := range []struct {
		name, code string
		want       []string
	}{
		{"a plain value is none", "5", nil},
		{"nothing", "None", nil},
		{"a rich value", "H()", []string{"*H text/html"}},
		{"display and value", "display(H('1'), 'two')\ndisplay()\nH('3')", []string{"H1 text/html", "'two'", "*H3 text/html"}},
		{"display and a plain value", "display(1)\n2", []string{"1", "*2"}},
		{"display alone", "display([1], None)", []string{"[1]", "None"}},
		{"in a loop and a function", "def f(): display(H('f'))\nfor _i in range(2): f()", []string{"Hf text/html", "Hf text/html"}},
		{"raw", "display({'text/plain': 'p', 'text/html': '<i>', 'application/x.y+json': {'a': 1}}, raw=True)", []string{"p text/html application/x.y+json"}},
		{"javascript and PDF", "class J:\n def __repr__(s): return 'J'\n def _repr_javascript_(s): return 'x()'\n def _repr_pdf_(s): return b'%PDF'\nJ()", []string{"*J application/pdf application/javascript"}},
		{"shown by itself", "class S:\n def _ipython_display_(s): display(H('s'))\nS()", []string{"Hs text/html"}},
		{"shows itself without end", "class S:\n def __repr__(s): return 'S'\n def _ipython_display_(s): display(s)\ndisplay(1)", []string{"1"}},
		{"fails to show itself", "class S:\n def __repr__(s): return 'S'\n def _ipython_display_(s): 1/0\nS()\n", nil},
		{"its own plain text", "class P:\n def _repr_mimebundle_(s, include, exclude): return {'text/plain': 'mine', 'text/html': 'h'}\ndisplay(P())", []string{"mine text/html"}},
		{"a repr that raises", "class R:\n def __repr__(s): 1/0\ndisplay(R())", []string{"<R object; its repr raised ZeroDivisionError>"}},
		{"before an exception", "display(H('e'))\n1/0", []string{"He text/html"}},
		{"a picture that is no base64", "display({'image/png': 'no base64', 'text/html': 'h'}, raw=True)", []string{" text/html"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := b.keptCode(t, c.code)
			assert.Equal(t, c.want, resultsOf(resp), resp.Stderr)
			assert.Equal(t, strings.Contains(c.code, "1/0\n") || !strings.HasSuffix(c.code, "1/0"), resp.Status == evaltool.StatusExited, resp.Stderr)
		})
	}
}

func TestTooManyResultsAreLeftOutAndSaid(t *testing.T) {
	b := newBench(t)
	b.keptCode(t, shownClass)
	for _, code := range []string{
		"for i in range(100_000): display(i)",
		"for i in range(1000): display(H())",
		"for i in range(20): display({'text/html': 'x' * (1 << 20)}, raw=True)",
		"import threading\nstop = False\ndef run():\n  while not stop: display(H())\nthreads = [threading.Thread(target=run) for _ in range(4)]\nfor th in threads: th.start()\nimport time; time.sleep(0.05)\nstop = True\nfor th in threads: th.join()",
	} {
		resp := b.keptCode(t, code)
		require.Equal(t, evaltool.StatusExited, resp.Status, resp.Stderr)
		assert.NotEmpty(t, resp.Results)
		assert.LessOrEqual(t, len(resp.Results), 32)
		assert.Contains(t, strings.Join(resp.Notes, ""), "left out")
	}
}

// The libraries are fakes in the workspace, with the interfaces of the real ones.

func (b *bench) write(t *testing.T, path, text string) {
	t.Helper()
	path = filepath.Join(b.workspace, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

const standInPandas = `
class DataFrame:
    def __init__(self, columns): self.columns_ = columns
    columns = property(lambda s: list(s.columns_))
    def __len__(self): return max(map(len, self.columns_.values()), default=0)
    def __repr__(self): return "table"
    def _repr_html_(self): return "<table/>"
    def to_json(self, orient): return "{}"
    def to_dict(self, orient): return self.columns_
`

func TestDataFramesHaveTheirData(t *testing.T) {
	b := newBench(t)
	b.write(t, "pandas.py", standInPandas)
	resp := b.keptCode(t, `
import pandas, datetime, decimal
nan = float("nan")
class Number:
    def item(self): return 4
frame = pandas.DataFrame({"b": [1, nan, True], 3: [datetime.date(2024, 1, 2), None, decimal.Decimal("1.5")], "a": [Number(), float("inf"), "x"]})
display(frame)
frame`)
	require.Equal(t, []string{"table text/html application/json data", "*table text/html application/json data"}, resultsOf(resp), resp.Stderr)
	for _, r := range resp.Results {
		assert.Equal(t, `{"b": [1, null, true], "3": ["2024-01-02", null, "1.5"], "a": [4, null, "x"]}`, string(r.Data))
	}
	for _, columns := range []string{"{'a': range(200_000)}", "{'a': ['x' * 2_000_000]}", "{'a': 1}"} {
		resp = b.keptCode(t, "pandas.DataFrame("+columns+")")
		if resp.Status == evaltool.StatusExited {
			assert.Equal(t, []string{"*table text/html application/json"}, resultsOf(resp), "too much: the table alone")
		}
	}
}

const standInPyplot = `
from matplotlib.figure import Figure
opened = {}
def figure(number=None):
    number = number or len(opened) + 1
    if number not in opened: opened[number] = Figure(number)
    return opened[number]
def get_fignums(): return sorted(opened)
def close(which): opened.clear()
def show(): raise RuntimeError("no screen")
`

const standInFigure = `
class Text:
    def __init__(self, text): self.text = text
    def get_text(self): return self.text
class Line2D:
    def __init__(self, x, y, label): self.x, self.y, self.label = x, y, label
    def get_xdata(self): return self.x
    def get_ydata(self): return self.y
    def get_label(self): return self.label
class Rectangle:
    def __init__(self, x, width, height): self.x, self.width, self.height = x, width, height
    def get_x(self): return self.x
    def get_width(self): return self.width
    def get_height(self): return self.height
class BarContainer(list):
    orientation = "vertical"
    def get_label(self): return "_container0"
class Wedge:
    r, theta1 = 1, 0
    def __init__(self, label, angle): self.label, self.theta2 = label, angle
    def get_label(self): return self.label
class PathCollection:
    def __init__(self, points): self.points = points
    def get_offsets(self): return self.points
    def get_label(self): return "s"
class Box:
    def __init__(self, corners): self.vertices = corners
class PathPatch:
    def __init__(self, corners): self.box = Box(corners)
    def get_path(self): return self.box
class Axis: converter = None
class Axes:
    xaxis = yaxis = Axis()
    def __init__(self, title=""): self.title, self.lines, self.patches, self.collections, self.containers = title, [], [], [], []
    def get_label(self): return ""
    def get_title(self): return self.title
    def get_xlabel(self): return "time (s)"
    def get_ylabel(self): return "v [mV]"
    def get_xticks(self): return [0, 1]
    def get_yticks(self): return [0.5]
    def get_xticklabels(self): return [Text("A"), Text("B")]
    def get_yticklabels(self): return [Text("0.5")]
    def get_xscale(self): return "linear"
    def get_yscale(self): return "log"
class Figure:
    def __init__(self, number=0): self.number, self.axes = number, []
    def __repr__(self): return f"figure {self.number}"
    def savefig(self, out, format, bbox_inches): out.write(f"{format}{self.number}".encode())
    def get_axes(self): return self.axes
    def get_suptitle(self): return "all"
    def add(self, **parts):
        ax = Axes("T")
        ax.__dict__.update(parts)
        self.axes.append(ax)
`

func newPlotBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.write(t, "matplotlib/__init__.py", "")
	b.write(t, "matplotlib/pyplot.py", standInPyplot)
	b.write(t, "matplotlib/figure.py", standInFigure)
	return b
}

func TestPlotsAreShownWhereTheCodeShowsThem(t *testing.T) {
	b := newPlotBench(t)
	for _, c := range []struct {
		name, code string
		want       []string
	}{
		{"show", "import matplotlib.pyplot as plt\nplt.figure()\nplt.show()\ndisplay('behind')\nplt.get_fignums()", []string{"figure 1 image/png", "'behind'", "*[]"}},
		{"show by name", "from matplotlib.pyplot import show, figure\nfigure()\nshow(block=False)", []string{"figure 1 image/png"}},
		{"open at the end", "plt.figure(); plt.figure(); 7", []string{"*7", "figure 1 image/png", "figure 2 image/png"}},
		{"a figure as the value", "plt.figure(); plt.figure(4)", []string{"*figure 4 image/png", "figure 1 image/png"}},
		{"a figure that pyplot does not know", "from matplotlib.figure import Figure\nFigure(9)", []string{"*figure 9 image/png"}},
		{"displayed", "display(Figure(8))", []string{"figure 8 image/png"}},
		{"nothing open", "plt.show()", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := b.keptCode(t, c.code)
			require.Equal(t, evaltool.StatusExited, resp.Status, resp.Stderr)
			assert.Equal(t, c.want, resultsOf(resp))
		})
	}
}

func TestFiguresHaveTheirChart(t *testing.T) {
	b := newPlotBench(t)
	const axes = `"title":"T","x_label":"time (s)","y_label":"v [mV]","x_unit":"s","y_unit":"mV"`
	const ticks = `"x_ticks":[0,1],"x_tick_labels":["A","B"],"x_scale":"linear","y_ticks":[0.5],"y_tick_labels":["0.5"],"y_scale":"log"`
	line := `{"type":"line",` + axes + `,` + ticks + `,"elements":[{"label":"sin","points":[[1,3],[2,null]]},{"label":"Line 1","points":[]}]}`
	for _, c := range []struct{ name, code, want string }{
		{"line", "f.add(lines=[Line2D([1, 2], [3, float('nan')], 'sin'), Line2D([], [], '_child1')])", line},
		{"scatter", "f.add(collections=[PathCollection([(1, 2), (3, 4)])])", `{"type":"scatter",` + axes + `,` + ticks + `,"elements":[{"label":"s","points":[[1,2],[3,4]]}]}`},
		{"bar", "bars = BarContainer([Rectangle(-.4, .8, 3), Rectangle(.6, .8, 4)])\nf.add(patches=list(bars), containers=[bars])",
			`{"type":"bar",` + axes + `,"elements":[{"label":"A","group":"Group 0","value":3},{"label":"B","group":"Group 0","value":4}]}`},
		{"pie", "f.add(patches=[Wedge('x', 90), Wedge('y', 270)])",
			`{"type":"pie","title":"T","x_label":null,"y_label":null,"x_unit":null,"y_unit":null,"elements":[{"label":"x","angle":90,"radius":1},{"label":"y","angle":270,"radius":1}]}`},
		{"box", "f.add(patches=[PathPatch([(-.2, 2), (.2, 2), (.2, 4), (-.2, 4), (-.2, 2)])], lines=[Line2D([0, 0], [2, 1], ''), Line2D([0, 0], [4, 5], ''), Line2D([-.2, .2], [3, 3], ''), Line2D([0], [9], '')])",
			`{"type":"box_and_whisker",` + axes + `,"elements":[{"label":"A","min":1,"first_quartile":2,"median":3,"third_quartile":4,"max":5,"outliers":[9]}]}`},
		{"unknown", "f.add(patches=[Wedge('x', 90), Rectangle(1, 1, 1)])", `{"type":"unknown",` + axes + `,"elements":[]}`},
		{"three dimensions", "f.add(name='3d', lines=[Line2D([1, 2], [3, 4], '')])", `{"type":"unknown",` + axes + `,"elements":[]}`},
		{"polar", "f.add(name='polar', lines=[Line2D([1, 2], [3, 4], '')])", `{"type":"unknown",` + axes + `,"elements":[]}`},
		{"superchart", "f.add()\nf.add(lines=[Line2D([1, 2], [3, float('nan')], 'sin'), Line2D([], [], '_child1')])", `{"type":"superchart","title":"all","elements":[{"type":"unknown",` + axes + `,"elements":[]},` + line + `]}`},
		{"no axes", "pass", ""},
		{"too many points", "f.add(lines=[Line2D(range(200_000), range(200_000), '')])", ""},
		{"raises", "f.add(lines=[Line2D(None, None, '')])", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := b.keptCode(t, "from matplotlib.figure import *\nf = Figure()\n"+c.code+"\nf")
			require.Equal(t, evaltool.StatusExited, resp.Status, resp.Stderr)
			require.Len(t, resp.Results, 1)
			if c.want == "" {
				assert.Nil(t, resp.Results[0].Chart)
				return
			}
			require.NotNil(t, resp.Results[0].Chart)
			assert.JSONEq(t, c.want, string(resp.Results[0].Chart))
		})
	}
}
