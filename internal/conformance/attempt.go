package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// attempt is one case as it runs.
type attempt struct {
	*runner
	c       *Case
	o       *opened
	own     bool // the session is this case's alone
	refused *Refused
	vars    vars
	peak    int64 // bytes before the case, -1 where nobody can tell

	mu       sync.Mutex
	problems []string
	passed   int // calls that succeeded
}

const maxProblems = 10 // kept of one case: a race repeats the same one

func (a *attempt) problem(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.problems) < maxProblems {
		a.problems = append(a.problems, fmt.Sprintf(format, args...))
	}
}

// begin makes the case's directory and finds or opens its session.
func (r *runner) begin(ctx context.Context, c *Case) (*attempt, error) {
	dir, err := r.caseDir()
	if err != nil {
		return nil, err
	}
	a := &attempt{runner: r, c: c, own: c.ownSession(), peak: -1, vars: vars{
		"TMP": dir, "CANARY": r.canary.file(), "CANARY_DIR": r.canary.dir, "N": "1",
	}}
	if err := a.onHost(ctx, c.HostSetup); err != nil {
		return nil, fmt.Errorf("host_setup: %w", err)
	}
	if a.o, err = a.session(ctx); errors.As(err, &a.refused) {
		return a, a.judgeRefusal()
	} else if err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	if overlay := a.o.Overlay(); overlay != "" {
		a.vars["OVERLAY"] = overlay
	}
	return a, nil
}

func (r *runner) caseDir() (string, error) {
	r.made++
	dir := filepath.Join(r.base, "case"+strconv.Itoa(r.made))
	return dir, os.Mkdir(dir, 0o755)
}

func (a *attempt) session(ctx context.Context) (*opened, error) {
	if a.own {
		return a.ownOne(ctx)
	}
	if a.shared == nil {
		o, err := a.open(ctx, nil, "")
		if err != nil {
			return nil, err
		}
		a.shared = o
	}
	return a.shared, nil
}

func (a *attempt) ownOne(ctx context.Context) (*opened, error) {
	flags := make([]string, len(a.c.Flags))
	for i, f := range a.c.Flags {
		var err error
		if flags[i], err = a.vars.fill(f); err != nil {
			return nil, err
		}
	}
	return a.open(ctx, flags, a.vars["TMP"].(string))
}

// judgeRefusal holds a server that did not start against the first call.
func (a *attempt) judgeRefusal() error {
	expect := a.c.Expect
	if a.c.Tool == "" && len(a.c.Steps) > 0 {
		expect = a.c.Steps[0].Expect
	}
	why, err := Match(expect, Answer{Refused: &a.refused.Words})
	if why != "" {
		a.problem("%s", why)
	}
	return err
}

func (a *attempt) inSandbox(ctx context.Context, script string) error {
	if script == "" {
		return nil
	}
	text, err := a.vars.fill(script)
	if err != nil {
		return err
	}
	return a.script(ctx, a.o, text)
}

// onHost runs a bash script in the case's directory; it must exit 0.
func (a *attempt) onHost(ctx context.Context, script string) error {
	if script == "" {
		return nil
	}
	text, err := a.vars.fill(script)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-ec", text)
	cmd.Dir = a.vars["TMP"].(string)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, clip(strings.TrimSpace(string(out)), 500))
	}
	return nil
}
