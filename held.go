package wisbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// held delegates a kept session's work to its holder, which it starts for the first operation that
// needs it.
type held struct {
	client *hold.Client
	looker *hold.Client // starts no holder
	dir    *overlay.Dir
	opts   SessionOptions
	log    *slog.Logger
}

func (h *here) newHeld(dir *overlay.Dir, o SessionOptions) *held {
	return &held{h.holders.Client(dir.ID(), markPath(dir)), h.holders.Looker(dir.ID()), dir, o, h.log}
}

func newCall() journal.Call { return journal.Call{ID: strings.ToLower(ulid.Make().String())} }

func (h *held) do(ctx context.Context, c journal.Call, op operation, io hold.Streams) (any, journal.Outcome, error) {
	s := specOf(op)
	answer, out, err := h.ask(ctx, h.clientFor(s), c, op, io)
	if err != nil && s.rests != nil {
		answer, err = s.rests(ctx, h, err)
	}
	return answer, out, err
}

// clientFor returns a client that starts a holder only if the operation needs one. If the last holder was killed,
// programs of it may still run, and the next one takes them over.
func (h *held) clientFor(s *spec) *hold.Client {
	if s.rests == nil || s.programs && hold.Marked(markPath(h.dir)) {
		return h.client
	}
	return h.looker
}

func (h *held) ask(ctx context.Context, client *hold.Client, c journal.Call, op operation, io hold.Streams) (any, journal.Outcome, error) {
	req, err := requestOf(c, op)
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	answer := &hold.Answer{}
	return answerOf(ctx, op, answer, client.Do(ctx, req, io, answer))
}

func (h *held) start(ctx context.Context, c journal.Call, op starter, io hold.Streams) (sandbox.Process, journal.Outcome, error) {
	req, err := requestOf(c, op)
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	s := specOf(op)
	req.Joins = s.joins
	p, err := h.clientFor(s).Start(ctx, req, io)
	if err != nil && s.rests != nil {
		_, err = s.rests(ctx, h, err)
	}
	return p, journal.Outcome{Effects: Effects{Unknown: tool.KindOf(err) != tool.Invalid}}, err
}

// restsAs returns a spec's rests that gives answer while the session has no holder.
func restsAs(answer any) func(context.Context, *held, error) (any, error) {
	return func(_ context.Context, _ *held, err error) (any, error) {
		if errors.Is(err, hold.ErrNoHolder) {
			return answer, nil
		}
		return nil, err
	}
}

// failsAs returns a spec's rests that fails with what while the session has no holder.
func failsAs(what error) func(context.Context, *held, error) (any, error) {
	return func(_ context.Context, _ *held, err error) (any, error) {
		if errors.Is(err, hold.ErrNoHolder) {
			return nil, what
		}
		return nil, err
	}
}

// restingInspection describes a session whose container doesn't run, or can't be asked.
func restingInspection(_ context.Context, h *held, err error) (any, error) {
	in := about(h.dir, h.opts)
	switch {
	case errors.Is(err, hold.ErrNoHolder):
		return in, nil
	case errors.Is(err, hold.ErrStandsStill), errors.Is(err, hold.ErrOtherVersion):
		in.Gaps = append(in.Gaps, "the container can't be asked: "+tool.AsError(err).Message)
		return in, nil
	}
	return nil, err
}

func restingUsage(ctx context.Context, h *held, err error) (any, error) {
	if errors.Is(err, hold.ErrNoHolder) {
		return diskUsage(ctx, h.dir, h.opts), nil
	}
	return nil, err
}

// restingEgress has no connections.
func restingEgress(_ context.Context, h *held, err error) (any, error) {
	if !errors.Is(err, hold.ErrNoHolder) {
		return nil, err
	}
	state, err := h.dir.Reload()
	if err != nil {
		return nil, err
	}
	opts, err := settingsOf(state.Settings)
	view := closedEgress(h.dir, opts)
	return &view, err
}

// record leaves operations of the holder to the holder, whose answers are already redacted.
func (h *held) record(event Event, err error, ours bool) (Event, error) {
	if ours {
		if failed := h.dir.AppendLog(event); failed != nil {
			h.log.Warn("append to the session's log", "session", h.dir.ID(), "error", failed)
		}
	}
	return event, err
}

func (h *held) close(context.Context, bool) error { return nil }

func (h *held) letGo(context.Context, bool) error { return nil }

// steady is left to the holder.
func (h *held) steady(context.Context) (unlock func(), err error) { return func() {}, nil }

// reset also opens the new workspace in this process.
func (h *held) reset(ctx context.Context, c journal.Call, replace func(func() (any, error)) error) error {
	if _, _, err := h.ask(ctx, h.client, c, resetOp{}, hold.Streams{}); err != nil {
		return err
	}
	return replace(func() (any, error) {
		if err := h.dir.Remake(ctx); err != nil {
			return nil, err
		}
		files, err := newFiles(h.dir, h.opts)
		if err != nil {
			return nil, err
		}
		return files, nil
	})
}

// HoldIdle is the time that a holder stays without a client and without a process that
// [Session.StartProcess] or process_start began.
const HoldIdle = hold.DefaultIdle

// HoldReady returns the ready function of [Manager.Hold] for the holder's process: it prints the
// line that [Options.Holder] expects on stdout.
func HoldReady(stdout *os.File) func() { return hold.Ready(stdout) }

// HoldLog returns a writer for the log of a holder's process: the file holder.log of the session, in
// the state root at cacheDir (as [Options.CacheDir]). The file has at most 1 MiB; then it becomes
// holder.log.old, and a new one begins.
func HoldLog(cacheDir, session string) (io.Writer, error) {
	path, err := overlay.SessionFile(cacheDir, session, "holder.log")
	if err != nil {
		return nil, err
	}
	return hold.NewLog(path), nil
}

var errExpired = errors.New("the session's time to live is over")

// Hold keeps a session's sandbox, interpreters and processes for its clients until ctx ends, a
// client stops it, or nobody has used it for idle (0: [HoldIdle]). It calls ready once clients can
// connect. At its end it removes the container, unless the session is paused; the files stay. If
// the session already has a holder, the error is busy; Hold waits at most 30 s for one that is
// ending or was killed.
func (m *Manager) Hold(ctx context.Context, name string, idle time.Duration, ready func()) error {
	if m.here == nil {
		return m.errElsewhere("Hold")
	}
	// A removal first ends the holder, and finds it only if it listens. So it listens before it opens the session.
	listener, err := m.here.holders.Listen(ctx, name)
	if err != nil {
		return err
	}
	defer listener.Release()
	s, l, err := m.attachHere(ctx, name)
	if err != nil {
		return err
	}
	if !listener.Current() {
		return errors.Join(tool.Errorf(tool.NotFound, "session %s was removed while its holder started; call again", name), s.Close(ctx))
	}
	l.holds.Store(true)
	killed := hold.Mark(markPath(l.dir))
	if killed {
		l.noteLoss()
	}
	if !l.stayPaused(ctx) && killed {
		l.reclaim(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if left, ok := l.dir.State().Left(overlay.Now()); ok {
		defer time.AfterFunc(left, func() { cancel(errExpired) }).Stop()
	}
	opts := &hold.Options{Session: &served{s, l}, Idle: idle, Log: m.log, Ending: l.ending}
	if counts, ok := m.opts.Meter.(Reporter); ok {
		opts.Metrics = func() ([]byte, error) { return reportOf(counts) }
	}
	holder := hold.New(opts)
	ready()
	cause := holder.Serve(ctx, listener)
	m.log.Info("holder ends", "session", name, "cause", cause)
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), box.DropGrace)
	defer stop()
	stay := l.leaves(end) && !errors.Is(cause, errExpired)
	l.leave.Store(stay)
	err = s.end(end, stay)
	if !stay {
		hold.Unmark(markPath(l.dir))
	}
	holder.Free()
	return err
}

// attachHere opens a session whose work this process does.
func (m *Manager) attachHere(ctx context.Context, name string) (*Session, *local, error) {
	o, err := m.here.find(ctx, name, func(SessionOptions) bool { return false })
	if err != nil {
		return nil, nil, err
	}
	l := o.exec.(*local)
	s, err := m.newSession(o)
	if err != nil {
		return nil, nil, errors.Join(err, o.close(ctx, true))
	}
	return s, l, nil
}

// served is a session for its holder's clients.
type served struct {
	s *Session
	l *local
}

// Do implements hold.Session.
func (d *served) Do(ctx context.Context, req hold.Request, io hold.Streams) (*hold.Answer, error) {
	op, err := operationOf(req)
	if err != nil {
		return nil, err
	}
	return d.s.serve(ctx, op, io, req.Call)
}

// serve performs an operation for a client of this process.
func (s *Session) serve(ctx context.Context, op operation, io hold.Streams, call string) (*hold.Answer, error) {
	if _, ok := op.(*resetOp); ok {
		return &hold.Answer{}, s.Reset(ctx)
	}
	answer, out, err := s.perform(ctx, op, io, call)
	if err != nil {
		return nil, err
	}
	return wireAnswer(answer, out)
}

// Start implements hold.Session.
func (d *served) Start(ctx context.Context, req hold.Request, io hold.Streams) (sandbox.Process, error) {
	op, err := operationOf(req)
	if err != nil {
		return nil, err
	}
	return d.s.startFor(ctx, op, io, req)
}

// startFor starts the program of an operation for a client of this process.
func (s *Session) startFor(ctx context.Context, op operation, io hold.Streams, req hold.Request) (sandbox.Process, error) {
	program, ok := op.(starter)
	if !ok {
		return nil, tool.Errorf(tool.Unsupported, "%s starts no program", req.Op)
	}
	return s.start(ctx, program, io, req.Call)
}

// Busy implements hold.Session. While the session isn't over, it still needs secrets and data of
// services that would be lost with the holder.
func (d *served) Busy() bool {
	_, expired := d.l.dir.State().Expired(overlay.Now())
	return d.l.busy() || d.l.stands() || !expired && (d.l.secrets.InMemory() || d.l.accompanied())
}

// Empty implements hold.Session.
func (d *served) Empty(ctx context.Context) error { return d.l.box.Close(ctx) }

// reportOf returns a Meter's counters.
func reportOf(counts Reporter) ([]byte, error) {
	var out bytes.Buffer
	err := counts.Report(&out)
	return out.Bytes(), err
}

// HolderReport has the counters of one kept session's holder.
type HolderReport struct {
	Session string
	Report  []byte // of its [Options.Meter], since its start
	Err     error  // the holder gave no report
}

const (
	reportsOnce = 16
)

var reportWait = patience.For(2 * time.Second) // so that a stopped holder doesn't delay the others

// HolderReports returns the counters of all holders of the state root's sessions. It waits at most
// 2 s for each. Sessions without a holder are not included.
func (m *Manager) HolderReports(ctx context.Context) ([]HolderReport, error) {
	if m.here == nil {
		return nil, m.errElsewhere("HolderReports")
	}
	all, err := m.here.store.List(ctx)
	if err != nil {
		return nil, err
	}
	asked := make([]*HolderReport, len(all))
	var group errgroup.Group
	group.SetLimit(reportsOnce)
	for i, e := range all {
		if !e.InUse || e.State.Status != overlay.StateReady && e.State.Status != overlay.StatePaused {
			continue
		}
		group.Go(func() error {
			if r, held := m.holderReport(ctx, e.ID); held {
				asked[i] = &r
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	var reports []HolderReport
	for _, r := range asked {
		if r != nil {
			reports = append(reports, *r)
		}
	}
	slices.SortFunc(reports, func(a, b HolderReport) int { return strings.Compare(a.Session, b.Session) })
	return reports, nil
}

func (m *Manager) holderReport(ctx context.Context, session string) (_ HolderReport, held bool) {
	ctx, cancel := context.WithTimeout(ctx, reportWait)
	defer cancel()
	out := HolderReport{Session: session}
	out.Report, out.Err = m.here.holders.Looker(session).Metrics(ctx)
	return out, !errors.Is(out.Err, hold.ErrNoHolder)
}
