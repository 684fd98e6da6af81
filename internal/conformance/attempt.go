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

// attempt is one case as it runs.
type attempt struct {
	*runner
	c   *Case
	dir string // the case's own on the host
	o   *opened
	own bool // the session is this case's alone

	mu       sync.Mutex
	vars     vars
	problems []string
	found    int // problems, with those that are not kept
	slow     int // of them those that are only of how quick things were
	passed   int // calls that succeeded
}

const maxProblems = 10 // kept of one case: a race repeats the same one

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

// onlySlow says that nothing but speed was wrong.
func (a *attempt) onlySlow() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.slow > 0 && a.slow == a.found
}

// check notes a problem where there is an error.
func (a *attempt) check(what string, err error) {
	if err != nil {
		a.problem("%s: %v", what, err)
	}
}

// with is the placeholders and one more.
func (a *attempt) with(name string, v value) vars {
	a.mu.Lock()
	defer a.mu.Unlock()
	more := maps.Clone(a.vars)
	more[name] = v
	return more
}

// tries is how often a case runs whose only problem is how quick things were: a machine
// that stood still for a moment is quicker the next time, what is slow by itself is not.
const tries = 5

// run runs one case and returns what was wrong.
func (r *runner) run(ctx context.Context, c *Case) (problems []string) {
	for n := 1; n <= tries; n++ {
		var again bool
		if problems, again = r.once(ctx, c); !again || c.keepsWorkspace() {
			break
		}
	}
	return problems
}

// once runs it; again says that nothing but speed was wrong.
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

// findSession opens a session, or takes the one that the cases of a file share.
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

// judgeRefusal holds a server that did not start against the first call.
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

// finish makes the checks that follow every case, and clears up after it.
func (a *attempt) finish(ctx context.Context) {
	if a.o != nil {
		a.stillWell(ctx)
		if a.own {
			a.note(a.o.end(ctx))
		} else if len(a.problems) > 0 {
			_ = a.closeShared(ctx) // the next case gets a session that is whole
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
