package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// attempt is one run of a case.
type attempt struct {
	*runner
	c   *Case
	dir string // the case's own directory on the host
	o   *opened
	own bool // no other case shares the session

	mu       sync.Mutex
	vars     vars
	problems []string
	found    int // problems, including those that aren't kept
	slow     int // problems of speed only
	passed   int // calls that succeeded
}

const maxProblems = 10 // kept for one case: a race repeats the same one

func (a *attempt) problem(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.found++
	if len(a.problems) < maxProblems {
		a.problems = append(a.problems, fmt.Sprintf(format, args...))
	}
}

// slowness notes a problem that another run of the case may not have.
func (a *attempt) slowness(format string, args ...any) {
	a.problem(format, args...)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slow++
}

// onlySlow reports whether all problems were of speed.
func (a *attempt) onlySlow() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.slow > 0 && a.slow == a.found
}

// check notes a problem unless err is nil.
func (a *attempt) check(what string, err error) {
	if err != nil {
		a.problem("%s: %v", what, err)
	}
}

// with returns the placeholders with one more.
func (a *attempt) with(name string, v value) vars {
	a.mu.Lock()
	defer a.mu.Unlock()
	more := maps.Clone(a.vars)
	more[name] = v
	return more
}

// tries is the number of runs of a case whose only problem is speed: a machine that stalled for a
// moment is faster the next time, slow code isn't.
const tries = 5

// run runs one case and returns its problems.
func (r *runner) run(ctx context.Context, c *Case) (problems []string) {
	for n := 1; n <= tries; n++ {
		var again bool
		if problems, again = r.once(ctx, c); !again || c.keepsWorkspace() {
			break
		}
	}
	return problems
}

// once runs a case once; again reports that all problems were of speed.
func (r *runner) once(ctx context.Context, c *Case) (problems []string, again bool) {
	r.made++
	a := &attempt{runner: r, c: c, dir: filepath.Join(r.base, "case"+strconv.Itoa(r.made))}
	a.vars = vars{
		"TMP": quote(a.dir), "CANARY": quote(r.canary.file()), "CANARY_DIR": quote(r.canary.dir), "N": quote("1"),
	}
	if err := os.Mkdir(a.dir, 0o755); err != nil {
		return []string{err.Error()}, false
	}
	if err := a.onHost(ctx, c.HostSetup); err != nil {
		return []string{"host_setup: " + err.Error()}, false
	}
	var refused *Refused
	if err := a.findSession(ctx); errors.As(err, &refused) {
		a.judgeRefusal(refused)
	} else if err != nil {
		return []string{"open a session: " + err.Error()}, false
	} else {
		a.play(ctx)
	}
	a.finish(ctx)
	return a.problems, a.onlySlow()
}

// findSession opens a session, or takes the one shared by the cases of a file.
func (a *attempt) findSession(ctx context.Context) (err error) {
	a.own = a.c.ownSession()
	if a.own {
		flags := make([]string, len(a.c.Flags))
		for i, f := range a.c.Flags {
			if flags[i], err = a.vars.fill(f); err != nil {
				return err
			}
		}
		a.o, err = a.open(ctx, flags, a.dir)
	} else if a.o = a.shared; a.o == nil {
		a.o, err = a.open(ctx, nil, "")
		a.shared = a.o
	}
	if err == nil && a.o.Overlay() != "" {
		a.vars["OVERLAY"] = quote(a.o.Overlay())
	}
	return err
}

// judgeRefusal checks a server that refused to start against the expectation of the first call.
func (a *attempt) judgeRefusal(r *Refused) {
	expect := a.c.Expect
	if a.c.Tool == "" && len(a.c.Steps) > 0 {
		expect = a.c.Steps[0].Expect
	}
	why, err := Match(expect, Answer{Refused: &r.Words})
	a.check("the server's refusal", err)
	if why != "" {
		a.problem("%s", why)
	}
}

const emptyWorkspace = `chmod -R u+rwX . 2>/dev/null
find . -mindepth 1 -maxdepth 1 -exec rm -rf {} +
test -z "$(ls -A)"`

// finish makes the checks that follow every case, and cleans up.
func (a *attempt) finish(ctx context.Context) {
	if a.o != nil {
		a.stillWell(ctx)
		if a.own {
			a.note(a.o.end(ctx))
		} else if len(a.problems) > 0 {
			_ = a.closeShared(ctx) // so that the next case gets an undamaged session
		}
	}
	a.check("host_check", a.onHost(ctx, a.c.HostCheck))
	a.check("outside of the workspace", changedSince(a.canary.dir, a.canary.was))
	_ = os.RemoveAll(a.dir)
}

func (a *attempt) stillWell(ctx context.Context) {
	if a.o.works {
		reply, err := a.o.call(ctx, "ls", json.RawMessage("{}"))
		if err != nil || reply.Answer.Error != nil {
			a.problem("the session no longer works: %v %v", err, reply.Answer)
		}
	}
	if a.o.sibling != "" {
		a.check("outside of the workspace", changedSince(a.o.sibling, a.o.was))
	}
	if !a.own && !a.c.keepsWorkspace() {
		a.check("the workspace can't be emptied", a.o.script(ctx, emptyWorkspace))
	}
	a.note(a.o.Broken())
}

func (a *attempt) note(problems []string) {
	for _, p := range problems {
		a.problem("%s", p)
	}
}

// inSandbox runs a bash script of the case in the sandbox; it must exit 0.
func (a *attempt) inSandbox(ctx context.Context, script string) error {
	text, err := a.vars.fill(script)
	if err != nil || text == "" {
		return err
	}
	return a.o.script(ctx, text)
}

// onHost runs a bash script in the case's directory; it must exit 0.
func (a *attempt) onHost(ctx context.Context, script string) error {
	text, err := a.vars.fill(script)
	if err != nil || text == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-ec", text)
	cmd.Dir = a.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, clip(strings.TrimSpace(string(out)), 500))
	}
	return nil
}
