package mcp

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// step is one call of a tool; kind is the expected error, if any.
type step struct {
	tool string
	args args
	fail bool // the result is marked failed
}

// typical has at least one call of every tool, including empty answers: an empty list must be [], unlike a nil slice.
var typical = []step{
	{"ls", args{}, false},
	{"glob", args{"pattern": "*.none"}, false},
	{"grep", args{"pattern": "none"}, false},
	{"write_file", args{"file_path": "empty", "content": ""}, false},
	{"read_file", args{"file_path": "empty"}, false},
	{"write_file", args{"file_path": "dir/a.py", "content": "x = 1\nprint(x)\n"}, false},
	{"write_file", args{"file_path": "dir/a.py", "content": "y = 2\n", "mode": "append"}, false},
	{"read_file", args{"file_path": "dir/a.py", "offset": 1, "limit": 1}, false},
	{"read_file", args{"file_path": "dir/a.py", "encoding": "base64"}, false},
	{"edit_file", args{"file_path": "dir/a.py", "old_string": "x = 1", "new_string": "x = 3"}, false},
	{"ls", args{"path": "dir"}, false},
	{"glob", args{"pattern": "**/*.py"}, false},
	{"grep", args{"pattern": "print", "before": 1, "after": 1}, false},
	{"grep", args{"pattern": "print", "path": "dir/a.py"}, false},
	{"shell_execute", args{"commands": []string{"true"}}, false},
	{"shell_execute", args{"script": "python3 dir/a.py; echo oops >&2; exit 3"}, false},
	{"shell_execute", args{"script": "seq 100000"}, false},
	{"shell_execute", args{"commands": []string{"sleep", "60"}, "timeout": 1}, true},
	{"shell_execute", args{"commands": []string{"true"}, "capture_output": false, "timeout": 1000}, false},
	{"process_list", args{}, false},
	{"process_start", args{"script": "read line; echo got $line"}, false},
	{"evaluate_python", args{"code": "1 + 1"}, false},
	{"evaluate_python", args{"code": "x = [1]\nprint(a)", "globals": args{"a": "2"}, "reads": []args{{"path": "empty"}}}, false},
	{"evaluate_python", args{"code": "x = 7", "writes": []args{{"path": "w", "content": "{x}"}}}, false},
	{"evaluate_python", args{"code": "1/0"}, true},
	{"evaluate_python", args{"code": "class DataFrame:\n  __module__ = 'pandas'\n  columns = ['b']\n  def __len__(s): return 1\n  def to_dict(s, orient): return {'b': [1]}\n  def _repr_png_(s): return b'x'\ndisplay(2)\nDataFrame()"}, false},
	{"rm", args{"path": "dir"}, false},
	{"rm", args{"path": "dir", "allow_missing": true}, false},
	{"list_directory", args{}, false},
	{"delete_file", args{"path": "w"}, false},
	{"snapshot_list", args{}, false},
	{"snapshot_create", args{}, false},
	{"snapshot_create", args{"label": "a label"}, false},
	{"snapshot_list", args{}, false},
	{"workspace_digest", args{}, false},
	{"workspace_digest", args{"set": "# Mine\n", "level": "summary"}, false},
	{"context_load", args{"name": "t", "text": "a\nb\n"}, false},
	{"context_op", args{"op": "slice", "args": args{"input": "t", "start": 0, "end": 1}}, false},
}

// inLisp has the calls of the Lisp tools.
var inLisp = []step{
	{"describe-last-error", args{}, false},
	{"get-backtrace", args{}, false},
	{"list-definitions", args{}, false},
	{"evaluate-lisp", args{"code": "(defun f (x) (* 2 x)) (f 21)"}, false},
	{"evaluate-lisp", args{"code": "(error \"no\")"}, true},
	{"compile-form", args{"code": "(lambda (x) (+ x 1))"}, false},
	{"time-execution", args{"code": "(f 1)"}, false},
	{"configure-limits", args{}, false},
	{"validate-syntax", args{"code": "(f"}, false},
	{"macroexpand-form", args{"form": "(when a b)"}, false},
	{"describe-symbol", args{"name": "car"}, false},
	{"apropos-search", args{"pattern": "no-such-symbol-anywhere"}, false},
	{"list-definitions", args{}, false},
	{"describe-last-error", args{}, false},
	{"get-backtrace", args{"max-frames": 3}, false},
	{"reset-session", args{}, false},
}

func TestResultsAreOfTheirOutputSchema(t *testing.T) {
	c := newWorld(t).needsPodman().stdio("--profile", "vfs")
	schemas := outputSchemas(t, c)
	called := map[string]bool{}
	hold := func(s step) args {
		called[s.tool] = true
		res := c.try(s.tool, s.args)
		require.Equal(t, s.fail, res.IsError, "%s %v: %s", s.tool, s.args, text(res))
		require.NotNil(t, schemas[s.tool], s.tool)
		assert.NoError(t, schemas[s.tool].Validate(res.StructuredContent), "%s %v: %v", s.tool, s.args, res.StructuredContent)
		return object(t, res)
	}
	var last = map[string]args{}
	for _, s := range append(typical, lispSteps(t, c, called)...) {
		if schemas[s.tool] == nil {
			continue // this wisbox doesn't have it
		}
		out := hold(s)
		if id, ok := out["output_id"]; ok {
			last["output"] = args{"output_id": id}
		}
		last[s.tool] = out
	}
	id := last["process_start"]["process_id"]
	hold(step{"read_output", last["output"], false})
	hold(step{"process_list", args{}, false})
	hold(step{"process_write", args{"process_id": id, "data": "hello\n", "eof": true}, false})
	hold(step{"process_read", args{"process_id": id, "offset": 0, "wait_seconds": 2}, false})
	tty := hold(step{"process_start", args{"script": "sleep 60", "tty": true}, false})["process_id"]
	hold(step{"process_resize", args{"process_id": tty, "cols": 100, "rows": 40}, false})
	hold(step{"process_signal", args{"process_id": tty, "signal": "KILL"}, false})
	if id := last["snapshot_create"]["snapshot_id"]; id != nil {
		c.call("write_file", args{"file_path": "later", "content": "x\n"})
		hold(step{"snapshot_diff", args{"from": id}, false})
		hold(step{"snapshot_restore", args{"snapshot_id": id}, false})
		hold(step{"snapshot_diff", args{"from": id, "to": id}, false})
	}
	for name := range schemas {
		assert.True(t, called[name], "no call of %s", name)
	}
}

func outputSchemas(t *testing.T, c *client) map[string]*jsonschema.Resolved {
	t.Helper()
	out := map[string]*jsonschema.Resolved{}
	for one, err := range c.Tools(t.Context(), nil) {
		require.NoError(t, err)
		raw, err := json.Marshal(one.OutputSchema)
		require.NoError(t, err)
		schema := &jsonschema.Schema{}
		require.NoError(t, json.Unmarshal(raw, schema), one.Name)
		out[one.Name], err = schema.Resolve(nil)
		require.NoError(t, err, one.Name)
	}
	return out
}

// lispSteps returns nil if Lisp doesn't run: it needs an image with SBCL.
func lispSteps(t *testing.T, c *client, called map[string]bool) []step {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "evaluate-lisp", Arguments: args{"code": "1"}})
	if err == nil && !res.IsError {
		return inLisp
	}
	t.Log("the Lisp tools are left out, Lisp doesn't run here: ", err, res)
	for _, s := range inLisp {
		called[s.tool] = true
	}
	return nil
}
