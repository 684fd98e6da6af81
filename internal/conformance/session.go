package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
)

// opened is a session that cases run in.
type opened struct {
	Session
	works   bool   // its first call worked
	warm    bool   // its container has been asked for
	sibling string // the directory beside the workspace, "" when that is not known
	was     map[string]string
}

func (r *runner) open(ctx context.Context, flags []string, dir string) (*opened, error) {
	s, err := r.target.Open(ctx, OpenOptions{Flags: flags, Dir: dir})
	if err != nil {
		return nil, err
	}
	o := &opened{Session: s}
	reply, err := r.call(ctx, s, "ls", json.RawMessage("{}"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the first call: %w", err), s.Close(ctx))
	}
	o.works = reply.Answer.Error == nil
	return o, r.plantSibling(o)
}

// plantSibling puts a directory beside the workspace whose name begins with the
// workspace's: a check that compares only beginnings takes it for inside.
func (r *runner) plantSibling(o *opened) error {
	overlay := o.Overlay()
	if overlay == "" {
		return nil
	}
	o.sibling = filepath.Clean(overlay) + "-evil"
	if err := r.canary.plant(o.sibling); err != nil {
		return err
	}
	var err error
	o.was, err = portrait(o.sibling)
	return err
}

func (r *runner) call(ctx context.Context, s Session, tool string, args json.RawMessage) (Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.CallTimeout)
	defer cancel()
	return s.Call(ctx, tool, args)
}

// warmUp makes the session's container, whatever comes of it: the time limits
// of the cases are for a session that is up.
func (r *runner) warmUp(ctx context.Context, o *opened) {
	if o.warm || r.opts.NoPrograms {
		return
	}
	o.warm = true
	_, _ = r.call(ctx, o, "shell_execute", json.RawMessage(`{"commands":["true"]}`))
}

// script runs a bash script in the sandbox; it must exit 0.
func (r *runner) script(ctx context.Context, o *opened, text string) error {
	reply, err := r.call(ctx, o, "shell_execute", scriptArgs(text))
	if err != nil {
		return err
	}
	if why, _ := Match("ok:exit_code=0", reply.Answer); why != "" {
		return fmt.Errorf("%s %s", why, clip(reply.Answer.Text, 1000))
	}
	return nil
}

func scriptArgs(text string) json.RawMessage {
	args := newObject()
	args.set("script", text)
	args.set("timeout", number("120"))
	return json.RawMessage(dump(args))
}

const emptyWorkspace = `chmod -R u+rwX . 2>/dev/null
find . -mindepth 1 -maxdepth 1 -exec rm -rf {} +
test -z "$(ls -A)"`

// closeShared ends the session of the file.
func (r *runner) closeShared(ctx context.Context) []string {
	if r.shared == nil {
		return nil
	}
	o := r.shared
	r.shared = nil
	return r.close(ctx, o)
}

func (r *runner) close(ctx context.Context, o *opened) []string {
	var problems []string
	if err := o.Close(ctx); err != nil {
		problems = append(problems, err.Error())
	}
	return append(problems, o.Broken()...)
}
