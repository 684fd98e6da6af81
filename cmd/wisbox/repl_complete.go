package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool"
)

const (
	namesShown = 100
	namesBytes = 1 << 20
)

var namesWait = patience.For(2 * time.Second)

// completion matches completions that Tab may insert: names, properties and calls.
var completion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\pL\pN_.]+\(?\)?$`) })

var dottedEnd = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[\pL\pN_.]+$`) })

// askNames runs Python's own completion over the names of the context. It doesn't change the last
// value.
const askNames = `print(__import__("json").dumps((lambda c, text: [m for m in (c.complete(text, i) for i in range(%d)) if m])(__import__("rlcompleter").Completer(globals()), %s)))`

// completer returns a function that returns Python's completions of a dotted name, or a problem. It
// waits at most namesWait, also for another evaluation in the context.
func completer(ctx context.Context, evaluate evaluator, in string) func(text string) ([]string, string) {
	return func(text string) (found []string, problem string) {
		quoted, err := json.Marshal(text)
		if err != nil {
			return nil, ""
		}
		ctx, cancel := context.WithTimeout(ctx, namesWait)
		defer cancel()
		seconds := namesWait.Seconds()
		var out bytes.Buffer
		res, err := evaluate(ctx, evaltool.Run{Params: evaltool.Params{
			Code: fmt.Sprintf(askNames, namesShown, quoted), State: "kept", Context: in, Timeout: &seconds,
		}}, func(p evaltool.Part) {
			if out.Len()+len(p.Stdout) <= namesBytes {
				out.WriteString(p.Stdout)
			}
		})
		if err != nil {
			if ctx.Err() != nil {
				return nil, "the context is busy"
			}
			return nil, tool.AsError(err).Error()
		}
		if e, err := evaluationOf(res); err == nil && e.Status != evaltool.StatusExited {
			return nil, strings.TrimSpace(e.Status + ": " + e.Message)
		}
		if json.Unmarshal(out.Bytes(), &found) != nil {
			return nil, ""
		}
		return found, ""
	}
}

// evaluator is [wisbox.Session.Evaluate].
type evaluator func(ctx context.Context, o evaltool.Run, each func(evaltool.Part)) (*tool.Result, error)

// complete handles Tab: after a name it completes the name or lists the candidates; elsewhere it
// indents.
func (c *console) complete(line string, pos int, key rune) (string, int, bool) {
	if key != '\t' {
		return "", 0, false
	}
	text := dottedEnd().FindString(line[:pos])
	if text == "" || c.names == nil {
		return indent(line, pos)
	}
	var names []string
	found, problem := c.names(text)
	if problem != "" {
		fmt.Fprintf(c, "wisbox: no completion: %s\n", streams.Printable(problem))
	}
	for _, name := range found {
		if name = strings.TrimSpace(name); strings.HasPrefix(name, text) && completion().MatchString(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return line, pos, true
	}
	common := names[0]
	for _, name := range names[1:] {
		for !strings.HasPrefix(name, common) {
			common = common[:len(common)-1]
		}
	}
	if common = strings.ToValidUTF8(common, ""); len(common) > len(text) || len(names) == 1 {
		at := pos - len(text) + len(common)
		return line[:pos-len(text)] + common + line[pos:], at, true
	}
	fmt.Fprintln(c, strings.Join(names, "  "))
	return line, pos, true
}

// indent handles Tab if there is no name before the cursor.
func indent(line string, pos int) (string, int, bool) {
	const width = "    "
	return line[:pos] + width + line[pos:], pos + len(width), true
}
