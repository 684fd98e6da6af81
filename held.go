package wisbox

import (
	"bytes"
	"context"
	"errors"
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
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// held has a kept session's work done by the process that holds it, which is
// started with the first operation that needs it.
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

// watcher asks about what runs. It starts no holder, unless the last one was killed:
// what that had started may run still, and the next one takes it over.
func (h *held) watcher() *hold.Client {
	if hold.Marked(markPath(h.dir)) {
		return h.client
	}
	return h.looker
}

func newCall() journal.Call { return journal.Call{ID: strings.ToLower(ulid.Make().String())} }

// byHolder is an operation that is more than a question and an answer where a
// holder does it.
type byHolder interface {
	byHolder(ctx context.Context, h *held, c journal.Call, io hold.Streams) (any, journal.Outcome, error)
}

func (h *held) do(ctx context.Context, c journal.Call, op operation, io hold.Streams) (any, journal.Outcome, error) {
	if special, ok := op.(byHolder); ok {
		return special.byHolder(ctx, h, c, io)
	}
	return ask(ctx, h.client, c, op, io)
}

func ask(ctx context.Context, client *hold.Client, c journal.Call, op operation, io hold.Streams) (any, journal.Outcome, error) {
	req, err := requestOf(c, op)
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	answer := &hold.Answer{}
	if err := client.Do(ctx, req, io, answer); err != nil {
		return nil, journal.Outcome{}, err
	}
	return answer, answer.Outcome, nil
}

func (h *held) start(ctx context.Context, c journal.Call, op starter, io hold.Streams) (sandbox.Process, journal.Outcome, error) {
	req, err := requestOf(c, op)
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	client := h.client
	if op.looks() {
		client, req.Joins = h.watcher(), true
	}
	p, err := client.Start(ctx, req, io)
	if errors.Is(err, hold.ErrNoHolder) {
		err = errNoProcesses
	}
	return p, journal.Outcome{Effects: Effects{Unknown: tool.KindOf(err) != tool.Invalid}}, err
}

// record leaves what the holder did to the holder; what comes from it is clean.
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

// byHolder says how a program ended whose caller did not wait for the answer.
func (o runOp) byHolder(ctx context.Context, h *held, c journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	answer, out, err := ask(ctx, h.client, c, o, io)
	if err != nil && ctx.Err() != nil {
		res := sandbox.Result{Status: sandbox.StatusCancelled, ExitCode: sandbox.ExitSignalBase + 9, Signal: "KILL"}
		return res, journal.Outcome{Failed: true, Verdict: string(res.Status), Effects: Effects{Unknown: true}}, nil
	}
	return answer, out, err
}

// byHolder starts no holder: where there is none, no container runs.
func (o inspectOp) byHolder(ctx context.Context, h *held, c journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	answer, out, err := ask(ctx, h.looker, c, o, io)
	in := about(h.dir, h.opts)
	switch {
	case errors.Is(err, hold.ErrNoHolder):
		return in, out, nil
	case errors.Is(err, hold.ErrStandsStill), errors.Is(err, hold.ErrOtherVersion):
		in.Gaps = append(in.Gaps, "the container can't be asked: "+tool.AsError(err).Message)
		return in, out, nil
	}
	return answer, out, err
}

// byHolder starts no holder either.
func (o usageOp) byHolder(ctx context.Context, h *held, c journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	answer, out, err := ask(ctx, h.looker, c, o, io)
	if errors.Is(err, hold.ErrNoHolder) {
		return diskUsage(ctx, h.dir, h.opts), out, nil
	}
	return answer, out, err
}

// byHolder opens the new workspace in this process too.
func (o resetOp) byHolder(ctx context.Context, h *held, c journal.Call, io hold.Streams) (any, journal.Outcome, error) { //nolint:unparam // as the others
	if _, _, err := ask(ctx, h.client, c, o, io); err != nil {
		return nil, journal.Outcome{}, err
	}
	if err := h.dir.Remake(ctx); err != nil {
		return nil, journal.Outcome{}, err
	}
	files, err := newFiles(h.dir, h.opts)
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	return files, journal.Outcome{}, nil
}

// HoldIdle is how long a holder stays without a client and without a process that
// [Session.StartProcess] or process_start began.
const HoldIdle = hold.DefaultIdle

// HoldReady is what the holder's process passes to [Manager.Hold] so that its
// starter knows: it prints the line that [Options.Holder] expects on stdout.
func HoldReady(stdout *os.File) func() { return hold.Ready(stdout) }

var errExpired = errors.New("the session's time to live is over")

// Hold keeps a session's sandbox, interpreters and processes for its clients
// until ctx ends, a client stops it, or nobody has used it for idle (0:
// [HoldIdle]). ready is called once clients can connect. At its end the
// container is removed, unless the session is paused; the files stay. A second holder is an error of kind busy;
// one that ends, or was killed, is waited for, at most 30 s.
func (m *Manager) Hold(ctx context.Context, name string, idle time.Duration, ready func()) error {
	s, l, err := m.attachHere(ctx, name)
	if err != nil {
		return err
	}
	release, listener, err := m.here.holders.Listen(ctx, name)
	if err != nil {
		return errors.Join(err, s.end(ctx, true))
	}
	defer release()
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
	o, err := m.here.open(ctx, name, func(SessionOptions) bool { return false })
	if err != nil {
		return nil, nil, err
	}
	l := o.exec.(*local)
	s, err := m.newSession(o.dir, o.opts, o.files, l)
	if err != nil {
		return nil, nil, errors.Join(err, l.close(ctx, true), o.files.Close(), o.dir.Close())
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
	if _, ok := op.(*resetOp); ok {
		return &hold.Answer{}, d.s.Reset(ctx)
	}
	answer, out, err := d.s.perform(ctx, op, io, req.Call)
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
	program, ok := op.(starter)
	if !ok {
		return nil, tool.Errorf(tool.Unsupported, "%s starts no program", req.Op)
	}
	return d.s.start(ctx, program, io, req.Call)
}

// Busy implements hold.Session. Values of secrets, and what services hold, would be lost
// with the holder that the session, which isn't over, still needs.
func (d *served) Busy() bool {
	_, expired := d.l.dir.State().Expired(overlay.Now())
	return d.l.busy() || d.l.stands() || !expired && (d.l.secrets.InMemory() || d.l.accompanied())
}

// Empty implements hold.Session.
func (d *served) Empty(ctx context.Context) error { return d.l.box.Close(ctx) }

// reportOf is what a Meter has counted.
func reportOf(counts Reporter) ([]byte, error) {
	var out bytes.Buffer
	err := counts.Report(&out)
	return out.Bytes(), err
}

// HolderReport is what the holder of one kept session has counted.
type HolderReport struct {
	Session string
	Report  []byte // of its [Options.Meter], since it was started
	Err     error  // there is a holder, but it gave no report
}

const (
	reportWait  = 2 * time.Second // a holder that is stopped doesn't hold up the others
	reportsOnce = 16
)

// HolderReports asks every holder of the state root's sessions for what it has
// counted, in at most 2 s each, and gives them by session. Sessions that nobody
// holds now are not among them.
func (m *Manager) HolderReports(ctx context.Context) ([]HolderReport, error) {
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
	_ = group.Wait() // it has no errors
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
