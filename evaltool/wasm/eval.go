package wasm

import (
	"context"
	"strings"

	"github.com/wisbox/wisbox/evaltool"
)

// Eval runs code in a fresh interpreter with each input as a global string. output is the printed text followed by the
// variable result, if it is set, without trailing newlines. failure describes a failure of the code, with a traceback
// or the limit that it hit; output then is the output before it. Standard error is included only in a failure. err
// means that the engine failed.
func (e *Engine) Eval(ctx context.Context, code string, inputs map[string]string) (output, failure string, err error) {
	stdout := &capped{left: e.opts.MaxOutput}
	var stderr evaltool.Stream
	t := &task{
		request: request{ID: "eval", Code: code, Eval: true},
		fuel:    e.opts.Fuel, memory: e.opts.Memory, timeout: e.opts.Timeout, stdout: stdout, stderr: &stderr,
	}
	for name, text := range inputs {
		t.reads = append(t.reads, evaltool.File{Path: name, Text: text})
	}
	leave, err := e.enter(ctx)
	if err != nil {
		return "", "", err
	}
	defer leave()
	python, err := e.load(ctx)
	if err != nil {
		return "", "", err
	}
	out, err := python.evaluate(ctx, t, python.image, newWorkspace(), nil)
	if err != nil {
		return "", "", err
	}
	if ctx.Err() != nil {
		return "", "", ctx.Err()
	}
	output, failure = e.evaluated(t, out, stdout.text())
	return output, failure, nil
}

func (e *Engine) evaluated(t *task, out *outcome, printed string) (output, failure string) {
	a := out.answer
	switch {
	case a == nil:
		return trimmed(printed), "limit: " + out.why(t)
	case a.Status == evaltool.StatusException:
		return trimmed(printed), evaltool.Clip(a.Traceback, evaltool.StreamChars)
	}
	if result, set := a.Fields["result"]; set {
		if printed != "" && !strings.HasSuffix(printed, "\n") {
			printed += "\n"
		}
		printed += strings.ToValidUTF8(result, "\uFFFD")
	}
	if len(printed) > e.opts.MaxOutput {
		return trimmed(strings.ToValidUTF8(printed[:e.opts.MaxOutput], "")), "limit: " + errOutput.Error()
	}
	return trimmed(printed), ""
}

func trimmed(s string) string { return strings.TrimRight(s, "\n") }

// capped keeps output and stops the program if there is too much.
type capped struct {
	kept []byte
	left int
}

func (c *capped) Write(p []byte) (int, error) {
	n := min(c.left, len(p))
	c.kept = append(c.kept, p[:n]...)
	c.left -= n
	if n < len(p) {
		return n, errOutput
	}
	return n, nil
}

func (c *capped) text() string { return strings.ToValidUTF8(string(c.kept), "\uFFFD") }
