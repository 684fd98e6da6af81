package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Options are the options of [Run]; nil means the defaults. In the environment, WISBOX_CASES is a
// pattern that selects cases by id, and WISBOX_SLACK replaces Slack.
type Options struct {
	// Skip returns a reason to skip a case, or "" to run it.
	Skip func(c *Case) string
	// Parallel runs the files at the same time, as many as -parallel allows.
	Parallel bool
	// Slack multiplies the cases' time limits; 0 means 1.
	Slack float64
}

// Summary counts cases.
type Summary struct {
	Pass, Fail, Skip int

	mu sync.Mutex
}

func (s *Summary) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d passed, %d failed, %d skipped", s.Pass, s.Fail, s.Skip)
}

// Run runs the cases of files as subtests of t. WISBOX_CASES is a regular expression for the IDs to
// run. With [Options.Parallel] the summary is complete only when t ends.
func Run(t *testing.T, target func(*testing.T) Target, opts *Options, files ...string) *Summary {
	t.Helper()
	only, err := regexp.Compile(os.Getenv("WISBOX_CASES"))
	if err != nil {
		t.Fatalf("WISBOX_CASES: %v", err)
	}
	if opts == nil {
		opts = &Options{}
	}
	sum := &Summary{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			cases, err := Load(file)
			if err != nil {
				t.Fatal(err)
			}
			if opts.Parallel {
				t.Parallel()
			}
			r := newRunner(t, target(t), opts.Slack)
			for _, c := range cases {
				if only.MatchString(c.ID) {
					t.Run(c.ID, func(t *testing.T) {
						defer sum.count(t)
						r.subtest(t, &c, opts)
					})
				}
			}
			fail(t, "at the end of the file", r.closeShared(t.Context()))
		})
	}
	t.Cleanup(func() { t.Logf("all: %s", sum) })
	return sum
}

func (r *runner) subtest(t *testing.T, c *Case, opts *Options) {
	if opts.Skip != nil {
		if why := opts.Skip(c); why != "" {
			t.Skip(why)
		}
	}
	fail(t, c.Why, r.run(t.Context(), c))
}

func fail(t *testing.T, what string, problems []string) {
	if len(problems) > 0 {
		t.Errorf("%s\n  %s", what, strings.Join(problems, "\n  "))
	}
}

func (s *Summary) count(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case t.Skipped():
		s.Skip++
	case t.Failed():
		s.Fail++
	default:
		s.Pass++
	}
}

// runner runs the cases of one file.
type runner struct {
	target Target
	slack  float64
	base   string // a directory for this run alone
	canary *canary
	shared *opened
	made   int // directories made for cases
}

func newRunner(t *testing.T, target Target, slack float64) *runner {
	t.Helper()
	r := &runner{target: target, slack: cmp.Or(slack, 1), base: t.TempDir()}
	var err error
	if text := os.Getenv("WISBOX_SLACK"); text != "" {
		if r.slack, err = strconv.ParseFloat(text, 64); err != nil {
			t.Fatalf("WISBOX_SLACK: %v", err)
		}
	}
	for dir := r.base; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if r.canary, err = newCanary(r.base); err != nil {
		t.Fatal(err)
	}
	return r
}

const callTimeout = 3 * time.Minute // for a call that never comes back

// opened is an open session for cases.
type opened struct {
	Session
	works   bool   // its first call succeeded
	warm    bool   // its container was requested
	sibling string // the directory beside the workspace, "" if it isn't known
	was     map[string]string
}

func (r *runner) open(ctx context.Context, flags []string, dir string) (*opened, error) {
	s, err := r.target.Open(ctx, OpenOptions{Flags: flags, Dir: dir})
	if err != nil {
		return nil, err
	}
	o := &opened{Session: s}
	reply, err := o.call(ctx, "ls", json.RawMessage("{}"))
	o.works = reply.Answer.Error == nil
	if overlay := o.Overlay(); err == nil && overlay != "" {
		// The sibling's name begins with the workspace's: a check that compares only prefixes would
		// take it for inside.
		o.sibling = filepath.Clean(overlay) + "-evil"
		o.was, err = r.canary.plant(o.sibling)
	}
	if err != nil {
		_ = s.Close(ctx)
		return nil, fmt.Errorf("the first call: %w", err)
	}
	return o, nil
}

func (o *opened) call(ctx context.Context, tool string, args json.RawMessage) (Reply, error) {
	return o.follow(ctx, tool, args, nil)
}

// follow is like call and passes on progress.
func (o *opened) follow(ctx context.Context, tool string, args json.RawMessage, progress func(string)) (Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return o.Call(ctx, tool, args, progress)
}

// warmUp creates the session's container and ignores errors: the time limits of the cases assume a
// running container.
func (o *opened) warmUp(ctx context.Context) {
	if !o.warm {
		o.warm = true
		_, _ = o.call(ctx, "shell_execute", json.RawMessage(`{"commands":["true"]}`))
	}
}

// script runs a bash script in the sandbox; it must exit 0.
func (o *opened) script(ctx context.Context, text string) error {
	args, err := json.Marshal(map[string]any{"script": text, "timeout": 120})
	if err != nil {
		return err
	}
	reply, err := o.call(ctx, "shell_execute", args)
	if err != nil {
		return err
	}
	if why, _ := Match("ok:exit_code=0", reply.Answer); why != "" {
		return fmt.Errorf("%s %s", why, clip(reply.Answer.Text, 1000))
	}
	return nil
}

// closeShared ends the session of the file.
func (r *runner) closeShared(ctx context.Context) []string {
	o := r.shared
	r.shared = nil
	return o.end(ctx)
}

func (o *opened) end(ctx context.Context) (problems []string) {
	if o == nil {
		return nil
	}
	if err := o.Close(ctx); err != nil {
		problems = append(problems, err.Error())
	}
	return append(problems, o.Broken()...)
}
