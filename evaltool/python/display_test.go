package python_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
)

func TestValuesAreShownAsNotebooksShowThem(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		name, body string
		want       []evaltool.Display
	}{
		{"html", "def _repr_html_(s): return '<b>x</b>'", []evaltool.Display{{MIME: "text/html", Data: "<b>x</b>"}}},
		{"svg", "def _repr_svg_(s): return '<svg/>'", []evaltool.Display{{MIME: "image/svg+xml", Data: "<svg/>"}}},
		{"png", "def _repr_png_(s): return b'\\x89PNG\\r\\n\\x1a\\n'", []evaltool.Display{{MIME: "image/png", Data: "iVBORw0KGgo="}}},
		{"png as base64", "def _repr_png_(s): return 'iVBORw0KGgo='", []evaltool.Display{{MIME: "image/png", Data: "iVBORw0KGgo="}}},
		{"png that is none", "def _repr_png_(s): return 'no base64'", nil},
		{"jpeg", "def _repr_jpeg_(s): return b'x'", []evaltool.Display{{MIME: "image/jpeg", Data: "eA=="}}},
		{"latex", "def _repr_latex_(s): return '$x$'", []evaltool.Display{{MIME: "text/latex", Data: "$x$"}}},
		{"markdown", "def _repr_markdown_(s): return '# x'", []evaltool.Display{{MIME: "text/markdown", Data: "# x"}}},
		{"json", "def _repr_json_(s): return {'a': [1]}", []evaltool.Display{{MIME: "application/json", Data: `{"a": [1]}`}}},
		{"with metadata", "def _repr_html_(s): return ('<i/>', {'isolated': True})", []evaltool.Display{{MIME: "text/html", Data: "<i/>"}}},
		{"bundle", "def _repr_mimebundle_(s, include=None, exclude=None): return {'text/plain': 'p', 'text/html': '<p/>'}\n def _repr_html_(s): return 'other'",
			[]evaltool.Display{{MIME: "text/html", Data: "<p/>"}}},
		{"several", "def _repr_html_(s): return 'h'\n def _repr_svg_(s): return 'v'",
			[]evaltool.Display{{MIME: "text/html", Data: "h"}, {MIME: "image/svg+xml", Data: "v"}}},
		{"raises", "def _repr_html_(s): raise ValueError", nil},
		{"none", "def _repr_html_(s): return None", nil},
		{"no text", "def _repr_html_(s): return 5", nil},
		{"json of what JSON lacks", "def _repr_json_(s): return {'a': float('nan'), 'b': [float('inf'), -float('inf')], 'c': {1}, 'd': 1j, 5: (2, None)}",
			[]evaltool.Display{{MIME: "application/json", Data: `{"a": null, "b": [null, null], "c": [1], "d": "1j", "5": [2, null]}`}}},
		{"json of itself", "def _repr_json_(s): s.l = []; s.l.append(s.l); return s.l", nil},
		{"answers anything", "def __getattr__(s, n): return lambda: 'x'", nil},
		{"too large", "def _repr_html_(s): return 'x' * (5 << 20)", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := b.keptCode(t, "class H:\n "+c.body+"\nH()")
			require.Equal(t, evaltool.StatusExited, resp.Status, resp.Stderr)
			assert.Equal(t, c.want, resp.Display)
			assert.Equal(t, c.name == "too large" || c.name == "json of itself", strings.Contains(strings.Join(resp.Notes, ""), "left out"))
		})
	}
	assert.Empty(t, b.keptCode(t, "H").Display, "a class is not shown as its objects are")
}

// The libraries below replace the real ones, which images may lack.

func TestOpenFiguresAreShownAtTheEndAndClosed(t *testing.T) {
	resp := newBench(t).code(t, `
import sys, types
plt = types.ModuleType("matplotlib.pyplot")
opened = [1, 2]
class Figure:
    def __init__(s, n): s.n = n
    def savefig(s, out, format, bbox_inches): out.write(f"{format}{s.n}".encode())
plt.get_fignums = lambda: list(opened)
plt.figure = Figure
plt.close = lambda which: opened.clear()
sys.modules["matplotlib.pyplot"] = plt
import atexit; _ = atexit.register(lambda: print(len(opened)))`)
	assert.Equal(t, []evaltool.Display{{MIME: "image/png", Data: "cG5nMQ=="}, {MIME: "image/png", Data: "cG5nMg=="}}, resp.Display)
}

func TestFramesAreShownAsHTMLAndJSON(t *testing.T) {
	resp := newBench(t).code(t, `
class DataFrame:
    __module__ = "pandas.core.frame"
    def _repr_html_(s): return "<table/>"
    def to_json(s, orient): return '{"columns":["a"],"data":[[1]]}'
DataFrame()`)
	assert.Equal(t, []evaltool.Display{{MIME: "text/html", Data: "<table/>"}, {MIME: "application/json", Data: `{"columns":["a"],"data":[[1]]}`}}, resp.Display)
}
