package integration

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/evaltool"
)

// TestRealPandasAndMatplotlib gets results from the packages themselves. Other tests use stand-ins with the same
// interfaces, since they have no index of Python packages.
func TestRealPandasAndMatplotlib(t *testing.T) {
	if os.Getenv("WISBOX_NIGHTLY") == "" {
		t.Skip("it installs 500 MB of Debian's packages; make nightly runs it")
	}
	h, name := newHome(t), ownName(t)
	h.do("image", "build", "--with", "data", "--python", "debian", "-t", name)
	s := open(t, &wisbox.SessionOptions{Image: name, MaxEvalTimeout: 2 * time.Minute})
	minute := 60.0
	shown := func(code string) (last evaltool.Object) {
		t.Helper()
		res, err := s.Evaluate(t.Context(), evaltool.Run{Params: evaltool.Params{Code: code, Context: "python", Timeout: &minute}}, func(part evaltool.Part) {
			if part.Shown != nil {
				last = *part.Shown
			}
		})
		require.NoError(t, err)
		require.False(t, res.Failed, res.Text)
		return last
	}
	mimes := func(o evaltool.Object) (all []string) {
		for _, d := range o.Display {
			all = append(all, d.MIME)
		}
		return all
	}
	shown("import pandas as pd, numpy as np, matplotlib.pyplot as plt")
	frame := shown("pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})")
	assert.Contains(t, mimes(frame), "text/html")
	assert.JSONEq(t, `{"a":[1,2],"b":["x","y"]}`, string(frame.Data))
	for kind, code := range map[string]string{
		"line":            "plt.plot([1, 2, 3], [4, 5, 6]);",
		"scatter":         "plt.scatter([1, 2], [3, 4]);",
		"bar":             "plt.bar(['a', 'b'], [1, 2]);",
		"pie":             "plt.pie([1, 2], labels=['a', 'b']);",
		"box_and_whisker": "plt.boxplot([[1, 2, 3, 9]]);",
		"superchart":      "f, (l, r) = plt.subplots(1, 2); l.plot([1, 2]); r.bar(['a'], [1]);",
	} {
		figure := shown(code)
		assert.Contains(t, mimes(figure), "image/png", kind)
		var chart struct{ Type string }
		require.NoError(t, json.Unmarshal(figure.Chart, &chart), kind)
		assert.Equal(t, kind, chart.Type)
	}
}
