// Package bash is the evaltool.Engine of the language bash: a shell for each context,
// which keeps variables, functions and its directory between evaluations. It is an
// interactive shell without a terminal, since that alone goes back to its prompt when it
// is interrupted, out of whatever it does.
//
// As everywhere the container is the boundary: what the shell answers is hostile input.
package bash

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/interp"
	"github.com/wisbox/wisbox/internal/kept"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
)

// Options configure an Engine.
type Options struct {
	// Runner gives what runs programs, and makes it on first use. Required.
	Runner func(ctx context.Context) (sandbox.Runner, error)
}

// Engine evaluates bash in the session's sandbox. It may be used from many goroutines at
// once; evaluations in one context wait for each other.
type Engine struct {
	runner func(ctx context.Context) (sandbox.Runner, error)
	kept   *kept.Table[string, held]
}

var (
	_ evaltool.Engine   = (*Engine)(nil)
	_ evaltool.Resetter = (*Engine)(nil)
)

// New makes an Engine. It starts nothing.
func New(opts *Options) *Engine {
	return &Engine{runner: opts.Runner, kept: kept.New[string](func(h *held) {
		if h.live != nil {
			h.live.Kill()
		}
	})}
}

// held is the shell of a context; live is nil before the first evaluation.
type held struct{ live *shell }

// shell is one bash. Its methods are called by one goroutine at a time.
type shell struct {
	*interp.Process[*evaltool.Stream]
	count int64
}

// maxAnswer is the length of an answer: an id and a status.
const maxAnswer = interp.SecretSize + 4

// command reads commands from the control channel. What an interactive shell says about
// the terminal that it lacks is thrown away.
const command = `exec 5>&2; exec bash --norc --noprofile --noediting +H -i <&3 3<&- 2>/dev/null`

// setUp makes the shell answer after each evaluation, also after one that was interrupted,
// and print no prompt, whatever the code makes of its variable.
const setUp = `set +o history; PS1= PS2=
__wisbox() { local s=$?; [ "$__wisbox" ] && printf '\0\0\0\044%s %03d' "$__wisbox" $s >&4; __wisbox= PS1= PS2=; }
readonly -f __wisbox; PROMPT_COMMAND=__wisbox; exec 2>&5 5>&-
`

func (e *Engine) start(ctx context.Context, req evaltool.Request) (*shell, error) {
	r, err := e.runner(ctx)
	if err != nil {
		return nil, err
	}
	cmd := sandbox.Cmd{Argv: []string{"sh", "-c", command}, Env: evaltool.Environ(req.ContextEnv)}
	p, err := interp.Start(ctx, r, cmd, maxAnswer, func() *evaltool.Stream { return &evaltool.Stream{Max: req.MaxOutput} })
	if err != nil {
		return nil, err
	}
	return &shell{Process: p}, nil
}

// Evaluate implements evaltool.Engine.
func (e *Engine) Evaluate(ctx context.Context, req evaltool.Request) (resp evaltool.Response, err error) {
	err = e.kept.Do(ctx, req.Context, func(ctx context.Context, h *held) error {
		var notes []string
		if h.live != nil && h.live.Ended() {
			h.live = nil
			notes = append(notes, "the shell had ended since the last evaluation: its variables are lost and a new one was started")
		}
		first := h.live == nil
		if first {
			if h.live, err = e.start(ctx, req); err != nil {
				resp, err = evaltool.NotStarted(ctx, toolerr.Of(err))
				return err
			}
		}
		defer req.Feed.ReleaseAfter(ctx, req.Timeout)()
		var alive bool
		if resp, alive = h.live.evaluate(ctx, req, first); !alive {
			h.live = nil
		}
		resp.Notes = append(notes, resp.Notes...)
		return nil
	})
	return resp, err
}

// evaluate is one evaluation; the bool is whether the shell is still there.
func (s *shell) evaluate(ctx context.Context, req evaltool.Request, first bool) (evaltool.Response, bool) {
	s.count++
	if feed := req.Feed; feed != nil {
		feed.Put(evaltool.Part{Count: s.count})
		s.Streams(func(stdout, stderr *evaltool.Stream) {
			stdout.Follow(feed.Stdout())
			stderr.Follow(feed.Stderr())
		})
	}
	id, status := interp.Secret(), 0
	answered, late := s.Ask(ctx, interp.Request{
		Message: strings.NewReader(message(id, req, first)), Timeout: req.Timeout, Release: req.Feed.Release,
		Accept: func(answer []byte) bool {
			said, ours := strings.CutPrefix(string(answer), id+" ")
			n, err := strconv.Atoi(said)
			status = n
			return ours && err == nil && n >= 0 && n <= 255
		},
	})
	if late != "" && answered {
		answered = s.tidy()
	}
	stdout, stderr := s.Output()
	resp := evaltool.Response{Status: evaltool.StatusExited, Stdout: stdout.Text(), Stderr: stderr.Text(), Count: s.count, Fed: true}
	switch {
	case late != "":
		resp.Status = string(late)
		if late == sandbox.StatusTimedOut {
			resp.Stderr = stderr.TextWith(evaltool.TimeoutText)
		}
		resp.Notes = append(resp.Notes, fate(answered))
	case !answered:
		res := s.Result()
		resp.Status, resp.Ended = string(res.Status), true
		resp.Notes = slices.Concat(res.Notices, []string{fmt.Sprintf("the shell ended with exit code %d: its variables are lost, the next evaluation starts a new one", res.ExitCode)})
	case status != 0:
		code := strconv.Itoa(status)
		resp.Notes = append(resp.Notes, "exit code "+code)
		resp.Raised = &evaltool.Raised{Name: "ExitCode", Value: code}
	}
	return resp, answered
}

func fate(alive bool) string {
	if alive {
		return "the variables of the shell are still there"
	}
	return "the code could not be interrupted, so its shell was ended: its variables are lost, the next evaluation starts a new one"
}

// tidyTime is how long the shell may take to end what an interrupted evaluation left: it
// only sends signals and waits for programs that these kill.
const tidyTime = 10 * time.Second

// tidy ends the programs that an interrupted evaluation began and that run on, those in
// the background too: they would write into the next evaluation. One that the shell
// forked while the interrupt was on its way has not got it. It reports whether the shell
// is still there.
func (s *shell) tidy() bool {
	id := interp.Secret()
	text := fmt.Sprintf("__wisbox=%s; builtin read -ra __wisbox_now </proc/$$/task/$$/children; "+
		"for __wisbox_pid in \"${__wisbox_now[@]}\"; do [[ \" $__wisbox_before \" = *\" $__wisbox_pid \"* ]] || { builtin kill -9 $__wisbox_pid; builtin wait $__wisbox_pid; }; done; __wisbox\n", id)
	answered, late := s.Ask(context.Background(), interp.Request{
		Message: strings.NewReader(text), Timeout: tidyTime,
		Accept: func(answer []byte) bool { return strings.HasPrefix(string(answer), id+" ") },
	})
	if late != "" && answered {
		s.Kill()
	}
	return answered && late == ""
}

// message is an evaluation as lines for the shell. Programs that the code starts get
// neither the channel nor the lines.
func message(id string, req evaltool.Request, first bool) string {
	var b strings.Builder
	if first {
		b.WriteString(setUp)
		if req.Dir != "" {
			fmt.Fprintf(&b, "cd -- %s 2>/dev/null\n", quoted(req.Dir))
		}
	}
	set, restore := variables(req.Env)
	fmt.Fprintf(&b, "__wisbox=%s; builtin read -r __wisbox_before </proc/$$/task/$$/children; %seval %s </dev/null 4>&-; __wisbox\n%s", id, set, quoted(req.Code), restore)
	return b.String()
}

// variables are those of one run: what they were comes back afterwards.
func variables(env map[string]string) (set, restore string) {
	for name, value := range env {
		if !variable().MatchString(name) { // a bash has no such variables
			continue
		}
		old := "__wisbox_" + name
		set += fmt.Sprintf("unset %s; [ -v %s ] && %s=$%s; export %s=%s; ", old, name, old, name, name, quoted(value))
		restore += fmt.Sprintf("unset %s; [ -v %s ] && export %s=$%s; unset %s\n", name, old, name, old, old)
	}
	return set, restore
}

var variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// Guidance implements evaltool.Engine.
func (e *Engine) Guidance() string { return "" }

// Cancel implements evaltool.Resetter.
func (e *Engine) Cancel(name string) { e.kept.Cancel(func(key string) bool { return key == name }) }

// Reset implements evaltool.Resetter.
func (e *Engine) Reset(ctx context.Context, name string) error {
	return e.kept.Reset(ctx, func(key string) bool { return key == name })
}

// Close implements evaltool.Resetter.
func (e *Engine) Close() error { return e.kept.Close() }
