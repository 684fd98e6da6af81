package e2b

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/builds"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/tool"
)

// run waits for its turn and builds. An owner's builds wait for one another before they wait for those of other owners.
// The time limit of a build excludes the wait.
func (b *build) run(wanted *Build, quota registry.Quota) {
	defer func() {
		_ = os.RemoveAll(b.dir)
		b.room.Release()
	}()
	for _, places := range []chan struct{}{b.yard.lane(b.Owner), b.yard.places} {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		case <-b.ctx.Done():
			b.end(wanted, b.ctx.Err())
			return
		}
	}
	ctx, cancel := context.WithTimeout(b.ctx, buildTime)
	defer cancel()
	b.mu.Lock()
	b.status = buildRunning
	b.mu.Unlock()
	err := b.make(ctx, wanted, quota)
	if ctx.Err() != nil && b.ctx.Err() == nil {
		err = tool.Errorf(tool.Timeout, "the build took longer than %s, the maximum; split it into several templates", buildTime)
	}
	b.end(wanted, err)
}

// make creates the template. It removes the template again if it exceeds its owner's disk limit, or was deleted
// meanwhile.
func (b *build) make(ctx context.Context, wanted *Build, quota registry.Quota) error {
	s := b.yard.server
	room, err := s.opts.Registry.ReserveDisk(ctx, b.Owner, buildRoom, quota)
	if err != nil {
		return err
	}
	defer room.Release()
	if err := s.opts.Builder.Build(ctx, wanted); err != nil {
		return err
	}
	t, err := s.snapshotOf(b.ID, b.Owner)
	if err == nil {
		err = room.Fits(context.WithoutCancel(ctx), t.Disk)
	}
	if err = cmp.Or(err, b.ctx.Err()); err == nil {
		return nil
	}
	return errors.Join(err, s.opts.Templates.Remove(context.WithoutCancel(ctx), b.ID))
}

// end records the end of a build.
func (b *build) end(wanted *Build, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status, b.ended = buildReady, time.Now()
	if b.ctx.Err() == nil {
		b.expires.Reset(buildKept)
	}
	if err == nil {
		return
	}
	f := failureOf(err)
	if f.Code >= http.StatusInternalServerError && b.ctx.Err() == nil {
		b.yard.server.opts.Log.Warn("a build failed", "error", registry.Quiet(err), "cause", registry.Quiet(causeOf(f)))
	}
	why := &reason{Message: f.Message, Entries: []logEntry{}}
	if failed := (*builds.StepError)(nil); errors.As(err, &failed) {
		why.Step = stepName(failed.Step, len(wanted.Recipe.Steps))
	}
	b.append("error", why.Step, f.Message)
	b.status, b.reason = buildFailed, why
}

// stepName returns the clients' name of a step.
func stepName(step, last int) string {
	switch {
	case step == 0:
		return "base"
	case step > last:
		return "finalize"
	}
	return strconv.Itoa(step)
}

// log stores a line of output.
func (b *build) log(step int, line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.logged > maxLog:
	case b.logged+len(line) > maxLog:
		b.logged = maxLog + 1
		b.append("warn", strconv.Itoa(step), "the log is full; make the steps write less, or into a file")
	default:
		b.append("info", strconv.Itoa(step), line)
	}
}

// lineCost is the overhead of a line, in bytes.
const lineCost = 100

func (b *build) append(level, step, line string) {
	if len(line) > maxLogLine {
		line = line[:maxLogLine] + "…"
	}
	b.logged += len(line) + lineCost
	b.lines = append(b.lines, logEntry{time.Now().UTC().Format(milliseconds), level, strings.ToValidUTF8(line, ""), step})
}
