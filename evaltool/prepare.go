package evaltool

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// call is one call that has passed validation.
type call struct {
	engine   Engine
	paths    vfs.Grammar
	language string
	request  Request
	reads    []ReadDone
	writes   []write
	notes    []string
	mark     time.Time // start of the code, see [vfs.Mark]
}

// prepare does all checks that are possible before code runs, and reads the files. Cheap checks come first; if it
// fails, nothing has changed.
func (e *Evaluator) prepare(ctx context.Context, run Run) (*call, error) {
	p := run.Params
	c := &call{paths: e.opts.Paths, request: Request{
		Code: p.Code, Globals: p.Globals, Sandbox: orDefault(p.Sandbox, SandboxContainer), Context: p.Context,
		Kept: p.State == "kept" || p.Context != "", Env: run.Env, MaxOutput: e.opts.MaxOutput,
	}}
	for _, check := range []func(Params) error{
		e.checkCode, checkGlobals, c.checkState, checkContext, c.takeWasm, e.takeTimeout(c), c.takeWrites,
	} {
		if err := check(p); err != nil {
			return nil, err
		}
	}
	if err := e.takeLanguage(c, run); err != nil {
		return nil, err
	}
	if err := e.takeEngine(c); err != nil {
		return nil, err
	}
	if err := e.takeReads(ctx, c, p.Reads); err != nil {
		return nil, err
	}
	if err := e.checkCreates(ctx, c); err != nil {
		return nil, err
	}
	return c, e.keepContext(c.request.Context, c.language)
}

func orDefault(value, def string) string {
	if value == "" {
		return def
	}
	return value
}

func (e *Evaluator) checkCode(p Params) error {
	if !utf8.ValidString(p.Code) {
		return tool.Errorf(tool.Invalid, "code is not valid UTF-8").In("code")
	}
	if n := utf8.RuneCountInString(p.Code); n > e.opts.MaxCode {
		return tool.Errorf(tool.Invalid, "code has %d characters; the maximum is %d: put long programs into a file and run it", n, e.opts.MaxCode).In("code")
	}
	at := 0
	for _, r := range p.Code {
		at++
		if unicode.IsControl(r) && r != '\t' && r != '\n' {
			return tool.Errorf(tool.Invalid, "code has the control character %U at character %d; only tab and newline are allowed", r, at).In("code")
		}
	}
	return nil
}

func (c *call) checkState(p Params) error {
	if state := orDefault(p.State, "fresh"); state != "fresh" && state != "kept" {
		return tool.Errorf(tool.Invalid, "state is %q; it must be one of fresh, kept", Clip(state, maxPathFold)).In("state")
	}
	return nil
}

func (c *call) takeWasm(p Params) error {
	for field, value := range map[string]*int64{"fuel": p.Fuel, "memory": p.Memory} {
		if value != nil && c.request.Sandbox != SandboxWasm {
			return tool.Errorf(tool.Invalid, "%s is for the sandbox wasm only; leave it out", field).In(field)
		}
		if value != nil && *value < 1 {
			return tool.Errorf(tool.Invalid, "%s must be at least 1", field).In(field)
		}
	}
	c.request.Fuel, c.request.Memory = deref(p.Fuel), deref(p.Memory)
	return nil
}

func deref[T any](v *T) (value T) {
	if v != nil {
		value = *v
	}
	return value
}

func (e *Evaluator) takeTimeout(c *call) func(Params) error {
	return func(p Params) error {
		c.request.Timeout = min(defaultTimeout, e.opts.MaxTimeout)
		if p.Timeout == nil {
			return nil
		}
		seconds := *p.Timeout
		if math.IsNaN(seconds) {
			return tool.Errorf(tool.Invalid, "timeout is not a number; give seconds, at most %v", e.opts.MaxTimeout.Seconds()).In("timeout")
		}
		clamped := min(max(seconds, minTimeout.Seconds()), e.opts.MaxTimeout.Seconds())
		if clamped != seconds {
			c.notes = append(c.notes, "the timeout of "+number(seconds)+" s was changed to "+number(clamped)+" s, which is the limit")
		}
		c.request.Timeout = time.Duration(clamped * float64(time.Second))
		return nil
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

func (e *Evaluator) takeEngine(c *call) error {
	switch c.request.Sandbox {
	case SandboxContainer:
		c.engine = e.opts.Container
	case SandboxRestricted:
		if c.engine = e.opts.Container; c.engine == nil {
			c.engine = e.opts.Wasm
		}
	case SandboxWasm:
		c.engine = e.opts.Wasm
	default:
		return tool.Errorf(tool.Invalid, "sandbox is %q; it must be one of container, restricted, wasm", Clip(c.request.Sandbox, maxPathFold)).In("sandbox")
	}
	switch c.language {
	case LanguageBash:
		c.engine = e.opts.Bash
	case LanguageJavaScript:
		c.engine = e.opts.JavaScript
	}
	if c.engine == nil {
		return tool.Errorf(tool.Unsupported, "this session has no sandbox %q; use another one: %s", c.request.Sandbox, strings.Join(e.sandboxes(), ", ")).In("sandbox")
	}
	return nil
}

// sandboxes returns the sandboxes that a call may use here.
func (e *Evaluator) sandboxes() []string {
	var names []string
	if e.opts.Container != nil {
		names = append(names, SandboxContainer)
	}
	if e.opts.Container != nil || e.opts.Wasm != nil {
		names = append(names, SandboxRestricted)
	}
	if e.opts.Wasm != nil {
		names = append(names, SandboxWasm)
	}
	return names
}
