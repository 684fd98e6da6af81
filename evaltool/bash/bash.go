// Package bash is the evaltool.Engine of the language bash. It runs a shell for each context,
// which keeps variables, functions and its directory between evaluations. The shell is
// interactive, without a terminal, since only an interactive shell always returns to its prompt
// after an interrupt.
//
// As everywhere, the container is the boundary: the shell's answers are hostile input.
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
	"github.com/wisbox/wisbox/evaltool/internal/keeper"
	"github.com/wisbox/wisbox/internal/interp"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

// Options configure an Engine.
type Options struct {
	// Runner returns the runner of programs, and creates it on first use. Required.
	Runner func(ctx context.Context) (sandbox.Runner, error)
}

// Engine evaluates bash in the session's sandbox. Its methods may be called concurrently; evaluations in one context
// wait for each other.
type Engine struct{ *keeper.Keeper }

var (
	_ evaltool.Engine   = (*Engine)(nil)
	_ evaltool.Resetter = (*Engine)(nil)
)

// New returns an Engine. It starts nothing.
func New(opts *Options) *Engine {
	return &Engine{keeper.New(&keeper.Options{
		Start: func(ctx context.Context, req evaltool.Request) (keeper.Interpreter, error) {
			p, err := keeper.Start(ctx, opts.Runner, sandbox.Cmd{Argv: []string{"sh", "-c", command}}, maxAnswer, req)
			if err != nil {
				return nil, err
			}
			return &shell{p}, nil
		},
		Lost: "the shell had ended since the last evaluation: its variables are lost and a new one was started",
	})}
}

// shell is one bash.
type shell struct{ *keeper.Process }

// maxAnswer is the length of an answer: an id and a status.
const maxAnswer = interp.SecretSize + 4

// command reads commands from the control channel. An interactive shell's messages about
// its missing terminal are discarded.
const command = `exec 5>&2; exec bash --norc --noprofile --noediting +H -i <&3 3<&- 2>/dev/null`

// setUp makes the shell answer after each evaluation, also after an interrupted one, and never print a prompt, even if
// the code sets the prompt's variables.
const setUp = `set +o history; PS1= PS2=
__wisbox() { local s=$?; [ "$__wisbox" ] && printf '\0\0\0\044%s %03d' "$__wisbox" $s >&4; __wisbox= PS1= PS2=; }
readonly -f __wisbox; PROMPT_COMMAND=__wisbox; exec 2>&5 5>&-
`

// Evaluate implements keeper.Interpreter.
func (s *shell) Evaluate(ctx context.Context, req evaltool.Request) (evaltool.Response, bool, error) {
	first := s.Count == 0
	s.Begin(req.Feed)
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
	resp := evaltool.Response{Status: evaltool.StatusExited, Stdout: stdout.Text(), Stderr: stderr.Text(), Count: s.Count, Fed: true}
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
	return resp, answered, nil
}

func fate(alive bool) string {
	if alive {
		return "the variables of the shell are still there"
	}
	return "the code could not be interrupted, so its shell was ended: its variables are lost, the next evaluation starts a new one"
}

// tidyTime is the maximum time for the shell to end the programs of an interrupted evaluation: it only sends signals
// and waits for the programs that they kill.
var tidyTime = patience.For(10 * time.Second)

// tidy ends the remaining programs of an interrupted evaluation, also those in the background: they would write into
// the next evaluation. A program that the shell forked just before the interrupt may have missed it. tidy reports
// whether the shell is still alive.
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

// message returns an evaluation as lines for the shell. Programs that the code starts get
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

// variables returns the lines that set the variables of one run, and those that restore
// the earlier values.
func variables(env map[string]string) (set, restore string) {
	for name, value := range env {
		if !variable().MatchString(name) { // bash can't have such variables
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
