package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Options say how [Run] runs. Nil is all the defaults.
type Options struct {
	// Only selects cases by their id. Default: what WISBOX_CASES holds, else all.
	Only *regexp.Regexp
	// Skip gives a reason to leave a case out, "" to run it.
	Skip func(c *Case) string
	// NoPrograms leaves out the cases that run programs in the sandbox.
	NoPrograms bool
	// Slack multiplies the time limits of the cases. Default 1, or WISBOX_SLACK.
	Slack float64
	// CallTimeout bounds one call that never comes back. Default 3 minutes.
	CallTimeout time.Duration
}

// Summary counts cases.
type Summary struct{ Pass, Fail, Skip int }

func (s Summary) String() string {
	return fmt.Sprintf("%d cases: %d pass, %d fail, %d skipped", s.Pass+s.Fail+s.Skip, s.Pass, s.Fail, s.Skip)
}

// Run makes one subtest of each file and, in it, one of each case. The cases of
// a file run one after the other.
func Run(t *testing.T, target Target, opts *Options, files ...string) Summary {
	t.Helper()
	var all Summary
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			s := runFile(t, target, opts, file)
			t.Logf("%s: %s", filepath.Base(file), s)
			all.Pass, all.Fail, all.Skip = all.Pass+s.Pass, all.Fail+s.Fail, all.Skip+s.Skip
		})
	}
	t.Logf("all: %s", all)
	return all
}

func runFile(t *testing.T, target Target, opts *Options, file string) (sum Summary) {
	cases, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRunner(target, opts, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range cases {
		c := &cases[i]
		if !r.opts.Only.MatchString(c.ID) {
			continue
		}
		t.Run(c.ID, func(t *testing.T) {
			defer func() { sum.count(t) }()
			r.subtest(t, c)
		})
	}
	if problems := r.closeShared(t.Context()); len(problems) > 0 {
		t.Errorf("at the end of the file:\n  %s", strings.Join(problems, "\n  "))
	}
	return sum
}

func (r *runner) subtest(t *testing.T, c *Case) {
	if why := r.skip(c); why != "" {
		t.Skip(why)
	}
	if problems := r.run(t.Context(), c); len(problems) > 0 {
		t.Errorf("%s\n  %s", c.Why, strings.Join(problems, "\n  "))
	}
}

func (s *Summary) count(t *testing.T) {
	switch {
	case t.Skipped():
		s.Skip++
	case t.Failed():
		s.Fail++
	default:
		s.Pass++
	}
}

func (r *runner) skip(c *Case) string {
	if r.opts.NoPrograms && c.needsPrograms() {
		return "it runs programs, which this target can't"
	}
	if r.opts.Skip != nil {
		return r.opts.Skip(c)
	}
	return ""
}

// runner runs the cases of one file.
type runner struct {
	target Target
	opts   Options
	base   string // a directory of this run alone
	canary *canary
	shared *opened
	made   int // directories made for cases
}

func newRunner(target Target, opts *Options, base string) (*runner, error) {
	r := &runner{target: target, base: base}
	if opts != nil {
		r.opts = *opts
	}
	if err := r.opts.fillIn(); err != nil {
		return nil, err
	}
	for dir := base; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			return nil, err
		}
	}
	var err error
	r.canary, err = newCanary(base)
	return r, err
}

func (o *Options) fillIn() (err error) {
	if o.Only == nil {
		if o.Only, err = regexp.Compile(os.Getenv("WISBOX_CASES")); err != nil {
			return fmt.Errorf("WISBOX_CASES: %w", err)
		}
	}
	if o.Slack == 0 {
		o.Slack = 1
		if text := os.Getenv("WISBOX_SLACK"); text != "" {
			if _, err := fmt.Sscanf(text, "%g", &o.Slack); err != nil {
				return fmt.Errorf("WISBOX_SLACK: %w", err)
			}
		}
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 3 * time.Minute
	}
	return nil
}

// run runs one case and returns what was wrong.
func (r *runner) run(ctx context.Context, c *Case) []string {
	a, err := r.begin(ctx, c)
	if err != nil {
		return []string{err.Error()}
	}
	if a.refused == nil {
		a.play(ctx)
	}
	r.end(ctx, a)
	return a.problems
}
