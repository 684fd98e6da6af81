package lisp

import (
	"context"
	"fmt"
	"time"
)

// limits are the settings of configure-limits.
type limits struct {
	timeout time.Duration // 0 means none
	output  int           // characters of each text
}

// maxOutput is the maximum of max-output, in characters.
const maxOutput = 1_000_000

var defaultLimits = limits{timeout: 30 * time.Second, output: 100_000}

type limitParams struct {
	Timeout   *int `json:"timeout,omitempty" min:"0" max:"86400" jsonschema:"seconds that one evaluation may take; 0 means no limit"`
	MaxOutput *int `json:"max-output,omitempty" min:"0" max:"1000000" jsonschema:"characters that are kept of each stream and of the values"`
}

// Limits is the result of configure-limits: the current limits.
type Limits struct {
	Timeout   int    `json:"timeout"`    // seconds, 0 means none
	MaxOutput int    `json:"max_output"` // characters
	Warning   string `json:"warning,omitempty"`
}

// Text implements tool.New's interface.
func (l Limits) Text() string {
	text := fmt.Sprintf("Current limits:\n  timeout: %d seconds\n  max-output: %d characters", l.Timeout, l.MaxOutput)
	if l.Warning != "" {
		text += "\nWARNING: " + l.Warning
	}
	return text
}

func (l *Lisp) configure(_ context.Context, p limitParams) (Limits, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.Timeout != nil {
		l.limits.timeout = time.Duration(*p.Timeout) * time.Second
	}
	if p.MaxOutput != nil {
		l.limits.output = *p.MaxOutput
	}
	out := Limits{Timeout: int(l.limits.timeout.Seconds()), MaxOutput: l.limits.output}
	if out.Timeout == 0 {
		out.Warning = "the timeout is disabled; an endless evaluation ends only when its caller cancels it"
	}
	return out, nil
}

// request begins a request under the limits of the session.
func (l *Lisp) request(what op) request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return request{op: what, limit: l.limits.output, timeout: l.limits.timeout}
}
