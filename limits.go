package wisbox

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/docker/go-units"

	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// limitsOp changes limits: those that aren't zero.
type limitsOp struct {
	Limits sandbox.Limits `json:"limits"`
}

func (o limitsOp) event() Event {
	e := Event{Tool: "update", Args: map[string]any{}}
	raw, _ := json.Marshal(o.Limits)
	_ = json.Unmarshal(raw, &e.Args)
	return e
}

func (o limitsOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	if err := l.setLimits(ctx, o.Limits); err != nil {
		return nil, journal.Outcome{}, err
	}
	in, err := l.inspect(ctx)
	return in, journal.Outcome{}, err
}

// setLimits changes the container first, then the disk, then the record; an error takes back what
// changed before. No container is created meanwhile.
func (l *local) setLimits(ctx context.Context, change sandbox.Limits) error {
	if l.m.opts.Single {
		return tool.Errorf(tool.Unsupported, "the limits of a session in a Pod are the Pod's, which can't change; create another session")
	}
	if err := l.awake(); err != nil {
		return err
	}
	return l.box.Alone(ctx, func(sb sandbox.Sandbox) error {
		if sb == nil { // another process may have left one
			if left, err := l.m.backend.Open(ctx, l.spec(ctx)); err == nil {
				defer func() { _ = left.Detach() }()
				sb = left
			}
		}
		was := l.settings().Limits.WithDefaults()
		now, err := changedLimits(was, change, sb != nil)
		if err != nil {
			return err
		}
		var back undo.Steps
		defer back.Run()
		if sb != nil && (now.CPUs != was.CPUs || now.Memory != was.Memory || now.PIDs != was.PIDs) {
			if err := l.resize(ctx, sb, was, now); err != nil {
				return err
			}
			back.Add(func() { _ = l.resize(context.WithoutCancel(ctx), sb, now, was) })
		}
		if change.Disk != 0 || change.Inodes != 0 {
			if err := l.dir.ResizeDisk(ctx, change.Disk, change.Inodes); err != nil {
				return err
			}
		}
		if err := l.updateSettings(ctx, func(o *SessionOptions) { o.Limits = now }); err != nil {
			return err
		}
		back.Keep()
		return nil
	})
}

// changedLimits returns the limits after a change. A running container keeps the sizes that it was
// created with.
func changedLimits(was, change sandbox.Limits, running bool) (now sandbox.Limits, err error) {
	now = sandbox.Limits{
		CPUs: cmp.Or(change.CPUs, was.CPUs), Memory: cmp.Or(change.Memory, was.Memory), PIDs: cmp.Or(change.PIDs, was.PIDs),
		Tmp: cmp.Or(change.Tmp, was.Tmp), Shm: cmp.Or(change.Shm, was.Shm), Disk: cmp.Or(change.Disk, was.Disk), Inodes: cmp.Or(change.Inodes, was.Inodes),
		NoFile: cmp.Or(change.NoFile, was.NoFile), FileSize: cmp.Or(change.FileSize, was.FileSize),
	}
	if !running && change.Tmp == 0 {
		now.Tmp = min(now.Tmp, now.Memory/2)
	}
	if !running && change.Shm == 0 { // it follows the memory
		now.Shm = 0
		now.Shm = now.WithDefaults().Shm
	}
	if was.FileSize == was.Disk && change.FileSize == 0 && (now.Disk > was.Disk || !running) { // the default
		now.FileSize = now.Disk
	}
	if running {
		if err := fitsContainer(was, now, change); err != nil {
			return now, err
		}
	}
	return now, checkLimits(now)
}

// fitsContainer refuses what a container can't change while it runs.
func fitsContainer(was, now, change sandbox.Limits) error {
	for _, fixed := range []struct {
		name     string
		was, now int64
	}{{"tmp", was.Tmp, now.Tmp}, {"shm_size", was.Shm, now.Shm}, {"nofile", was.NoFile, now.NoFile}, {"file_bytes", was.FileSize, cmp.Or(change.FileSize, was.FileSize)}} {
		if fixed.was != fixed.now {
			return tool.Errorf(tool.Conflict, "%s can't change while the session has a container; stop the session first, then update it", fixed.name).In(fixed.name)
		}
	}
	if files := was.InMemory(); now.Memory < was.Memory && now.Memory/8*7 < files {
		return tool.Errorf(tool.Conflict, "memory can't become %s while the session has a container, whose files in memory (/tmp, /dev/shm, the home) may take %s; stop the session first, then update it",
			units.BytesSize(float64(now.Memory)), units.BytesSize(float64(files))).In("memory")
	}
	return nil
}

// resize changes a running sandbox, and reads back what it enforces.
func (l *local) resize(ctx context.Context, sb sandbox.Sandbox, was, now sandbox.Limits) error {
	r, ok := sandbox.As[sandbox.Resizer](sb)
	if !ok {
		return tool.Errorf(tool.Unsupported, "the limits of running programs can't change on this backend; stop the session first, then update it")
	}
	if gauger, ok := sandbox.As[sandbox.Gauger](sb); ok && now.Memory < was.Memory {
		if used, err := gauger.Gauge(ctx); err == nil && used.Memory > now.Memory {
			return tool.Errorf(tool.Conflict, "memory can't become %s: the session's programs and files in memory take %s now; end some, or stop the session first",
				units.BytesSize(float64(now.Memory)), units.BytesSize(float64(used.Memory))).In("memory")
		}
	}
	held := enforced(ctx, sb)
	if err := r.Resize(ctx, now); err != nil {
		return toolerr.Of(err)
	}
	for name := range held {
		if !enforced(ctx, sb)[name] {
			_ = r.Resize(context.WithoutCancel(ctx), was)
			return tool.Errorf(tool.Unavailable, "%s was not taken over by this host; the limits are as they were", name).In(name)
		}
	}
	return nil
}

// enforced returns the names of the container's limits that hold.
func enforced(ctx context.Context, sb sandbox.Sandbox) map[string]bool {
	out := map[string]bool{}
	info, err := sb.Info(ctx)
	for _, l := range info.Limits {
		if err == nil && l.Enforced && slices.Contains([]string{"cpus", "memory", "pids"}, l.Name) {
			out[l.Name] = true
		}
	}
	return out
}
