package wisbox

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/wisbox/wisbox/cluster"
	"github.com/wisbox/wisbox/digest"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/podbook"
	"github.com/wisbox/wisbox/internal/sharing"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// PodNotes are a gateway's notes on a session's Pod, see [cluster.Notes].
type PodNotes = cluster.Notes

// Cluster returns the Manager's place on Kubernetes, or nil if its sessions aren't Pods. Closing the
// Manager closes it.
func (m *Manager) Cluster() cluster.Place {
	if p, ok := m.place.(*pods); ok {
		return p.cluster
	}
	return nil
}

// pods runs sessions on Kubernetes. Each session has its own Pod with a wisbox in it, which pods uses like
// a remote machine.
type pods struct {
	opts    *Options
	log     *slog.Logger
	cluster cluster.Place
	own     *there // for requests without a session, which it rejects

	known sharing.Map[string, *inPod] // Pods that may have a connection, by UID
}

// inPod is the wisbox in one Pod.
type inPod struct {
	*there
	pods *pods
	seen atomic.Pointer[cluster.Pod] // the Pod as a call last found it
}

// The default image of Pods contains wisbox.
const (
	podImage         = images.Pods
	podImageVariable = "WISBOX_POD_IMAGE"
)

func newPods(opts *Options, log *slog.Logger) (*pods, error) {
	address, err := far.ParseKube(opts.Far)
	if err != nil {
		return nil, err
	}
	p := &pods{opts: opts, log: log}
	if p.cluster, err = cluster.New(address.Context, address.Namespace, &cluster.Options{Logger: log}); err != nil {
		return nil, err
	}
	p.own, err = thereBy(noMachine{p.cluster}, p.cluster.String(), opts, log)
	return p, err
}

// clusters is an error of the cluster. Its text names parts of the cluster, so only its users may see it.
type clusters struct{ error }

func (c clusters) Unwrap() error { return c.error }

// ofCluster marks err as an error of the cluster.
func ofCluster(err error) error {
	if err == nil {
		return nil
	}
	known := tool.AsError(err)
	return (&tool.Error{Kind: known.Kind, Field: known.Field, Message: known.Message}).Because(clusters{err})
}

// errLost is the cause of an error about a session's lost programs. Its text doesn't name the cluster.
var errLost = errors.New("the node ended the programs")

// defaultImage returns the image of sessions without one in their options.
func (m *Manager) defaultImage() string {
	if m.Cluster() == nil {
		return images.Default
	}
	return cmp.Or(os.Getenv(podImageVariable), podImage)
}

// saveAndLoad is the advice for sessions on Kubernetes, which have no copies.
const saveAndLoad = "save the session, and load the archive: wisbox save, wisbox load"

// errNotOnPods returns the error for a feature that Kubernetes sessions lack.
func errNotOnPods(what, instead string) *tool.Error {
	return tool.Errorf(tool.Unsupported, "%s isn't supported on Kubernetes yet; %s", what, instead)
}

// noMachine is a [far.Way] that never connects, since no single machine has all sessions.
type noMachine struct{ cluster.Place }

// Connect implements [far.Way].
func (noMachine) Connect(context.Context) (io.ReadWriteCloser, error) {
	return nil, errNotOnPods("a template", "leave it out, or give --image")
}

// Explain implements [far.Way].
func (noMachine) Explain(_ io.ReadWriteCloser, err error) error { return err }

// podWay connects to the wisbox in a Pod.
type podWay struct{ to *inPod }

// Connect implements [far.Way].
func (w podWay) Connect(ctx context.Context) (io.ReadWriteCloser, error) {
	stream, err := w.to.pods.cluster.Relay(ctx, w.to.seen.Load())
	return stream, w.to.pods.shown(ofCluster(err))
}

// Explain implements [far.Way].
func (w podWay) Explain(stream io.ReadWriteCloser, err error) error {
	return w.to.pods.shown(ofCluster(w.to.pods.cluster.Explain(w.to.seen.Load(), stream, err)))
}

// Advice returns advice for a failed connection.
func (w podWay) Advice() string { return "call again" }

// String implements [far.Way].
func (w podWay) String() string {
	if w.to.pods.opts.ClusterError != nil {
		return "the sandbox"
	}
	return "the Pod of session " + w.to.seen.Load().Session
}

// shown returns an error of the cluster as callers may see it.
func (p *pods) shown(err error) error {
	if err == nil || p.opts.ClusterError == nil {
		return err
	}
	return p.opts.ClusterError(err)
}

// lookTime bounds the search for the cause of a failed call.
var lookTime = patience.For(10 * time.Second)

// because adds the cluster's explanation to the error of an operation.
func (i *inPod) because(ctx context.Context, began time.Time, err error) error {
	if kind := tool.KindOf(err); kind != tool.Unavailable && kind != tool.Closed || ctx.Err() != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	now, gone := i.pods.cluster.Now(ctx, i.seen.Load())
	switch {
	case tool.KindOf(gone) == tool.Closed:
		return tool.AsError(i.pods.shown(ofCluster(gone))).Because(ofCluster(errors.Join(gone, err)))
	case gone != nil:
		return err
	}
	if lost := i.pods.cluster.Lost(now, began); lost != nil {
		return tool.AsError(i.pods.shown(lost)).Because(errors.Join(errLost, err))
	}
	return err
}

// enter returns the wisbox in the Pod with this UID. The caller must release it.
func (p *pods) enter(pod *cluster.Pod) (*inPod, error) {
	in, err := p.known.Use(pod.UID, func() (_ *inPod, err error) {
		in := &inPod{pods: p}
		in.seen.Store(pod)
		if in.there, err = thereBy(podWay{in}, p.cluster.String(), p.opts, p.log); err != nil {
			return nil, err
		}
		in.there.why = in.because
		return in, nil
	})
	if err == nil {
		in.seen.Store(pod) // newer, if another call created in
	}
	return in, err
}

// release closes the connection after its last use.
func (i *inPod) release() error {
	if i.pods.known.Release(i.seen.Load().UID, i) {
		return i.there.close()
	}
	return nil
}

// held makes closing a session's handle release the connection.
func (i *inPod) held(s *opened) *opened {
	s.at.(*outpost).left = i.release
	return s
}

// find returns the wisbox in a session's Pod. The caller must release it.
func (p *pods) find(ctx context.Context, name string) (*inPod, error) {
	pod, err := p.cluster.Find(ctx, name)
	if err != nil {
		return nil, ofCluster(err)
	}
	return p.enter(pod)
}

// podNetwork explains why a Pod has no network rules.
const podNetwork = "its programs share the Pod's network, which a NetworkPolicy of the cluster limits (docs/cluster.md)"

// fits returns an error if o has options that Kubernetes sessions lack.
func fits(o SessionOptions) error {
	for _, asked := range []struct {
		field   string
		yes     bool
		instead string
	}{
		{"template", o.Template != "", "load an archive with wisbox load"},
		{"services", len(o.Services) > 0, "leave them out"},
		{"seccomp", o.Seccomp != "", "leave it out"},
		{"userns", o.UserNS != "", "leave it out"},
		{"isolation", o.Isolation == sandbox.IsolationGVisor, "leave it out: in a Pod of gVisor the two containers don't have one workspace (docs/cluster.md)"},
		{"allow", len(o.Allow) > 0, podNetwork},
		{"deny", len(o.Deny) > 0, podNetwork},
		{"inject", len(o.Inject) > 0, podNetwork},
		{"egress_via", o.EgressVia != "", podNetwork},
		{"egress_record", o.EgressRecord, podNetwork},
	} {
		if asked.yes {
			return errNotOnPods(asked.field, asked.instead).In(asked.field)
		}
	}
	return nil
}

// create creates a session's Pod and completes its options.
func (p *pods) create(ctx context.Context, o SessionOptions) (*inPod, SessionOptions, error) {
	if err := fits(o); err != nil {
		return nil, o, err
	}
	o.Name = cmp.Or(o.Name, strings.ToLower(ulid.Make().String()))
	o.Image = cmp.Or(o.Image, os.Getenv(podImageVariable), podImage)
	s := cluster.PodOptions{
		Name: o.Name, Image: o.Image, Limits: o.Limits, Snapshots: o.snapshotSpace(), TTL: o.TTL, UserHome: o.UserHome, Notes: o.Pod,
	}
	switch {
	case o.Pull == PullAlways:
		s.Pull = cluster.PullAlways
	case o.Pull == PullNever, strings.HasPrefix(o.Image, "localhost/"):
		s.Pull = cluster.PullNever
	}
	o.Pull = "" // the node pulls the image; the Pod can't
	pod, err := p.cluster.Create(ctx, s)
	if err != nil {
		return nil, o, ofCluster(err)
	}
	in, err := p.enter(pod)
	if err != nil {
		return nil, o, errors.Join(err, ofCluster(p.cluster.Withdraw(context.WithoutCancel(ctx), pod)))
	}
	return in, o, nil
}

// open implements places.
func (p *pods) open(ctx context.Context, o SessionOptions) (*opened, error) {
	in, o, err := p.create(ctx, o)
	if err != nil {
		return nil, err
	}
	s, err := in.open(ctx, o)
	if err != nil {
		return nil, p.withdraw(ctx, in, err)
	}
	return p.removes(in, s), nil
}

// withdraw removes the Pod of a session that failed to open.
func (p *pods) withdraw(ctx context.Context, in *inPod, err error) error {
	err = in.because(ctx, time.Time{}, err) // whatever happened to the new Pod is the cause
	return errors.Join(err, in.release(), ofCluster(p.cluster.Withdraw(context.WithoutCancel(ctx), in.seen.Load())))
}

// removes makes removing a session remove its own Pod, not a newer Pod of the same name.
func (p *pods) removes(in *inPod, s *opened) *opened {
	at := s.at.(*outpost)
	s.remove = func(ctx context.Context) error {
		if in.recall(at) != nil {
			_ = in.records.Remove(at.id) // a leftover record belongs to no session
		}
		return errors.Join(in.there.close(), ofCluster(p.cluster.Withdraw(ctx, in.seen.Load())))
	}
	return in.held(s)
}

// load implements places.
func (p *pods) load(ctx context.Context, r io.Reader, o LoadOptions) (*opened, []string, error) {
	if o.WithSettings {
		return nil, nil, errNotOnPods("taking the settings of an archive", "give them as options: a Pod's limits are fixed before the archive is read").In("with_settings")
	}
	settings := SessionOptions{}
	if o.Settings != nil {
		settings = *o.Settings
	}
	settings.Name, settings.Kept = cmp.Or(settings.Name, o.Name), settings.Kept || o.Kept
	in, settings, err := p.create(ctx, settings)
	if err != nil {
		return nil, nil, err
	}
	o.Name, o.Settings = settings.Name, &settings
	s, left, err := in.load(ctx, r, o)
	if err != nil {
		return nil, nil, p.withdraw(ctx, in, err)
	}
	return p.removes(in, s), left, nil
}

// fork implements places.
func (p *pods) fork(context.Context, *Session, int, CloneOptions) ([]*opened, error) {
	return nil, errNotOnPods("a clone", saveAndLoad)
}

// attach implements places.
func (p *pods) attach(ctx context.Context, name string) (*opened, error) {
	in, err := p.find(ctx, name)
	if err != nil {
		return nil, err
	}
	s, err := in.attach(ctx, name)
	if err == nil {
		return in.held(s), nil
	}
	if tool.KindOf(err) == tool.NotFound {
		err = tool.Errorf(tool.Closed, "the Pod of session %s is there, but its session isn't: either its opening was cut off, or the Pod was deleted and something created it again, empty; remove it, and open it again: wisbox rm %s", name, name).Because(err)
	}
	return nil, errors.Join(err, in.release())
}

// list implements places.
func (p *pods) list(ctx context.Context) ([]overlay.Entry, error) {
	all, err := p.cluster.List(ctx)
	return entriesOf(all), ofCluster(err)
}

// listOf is list for the sessions of one owner.
func (p *pods) listOf(ctx context.Context, owner string) ([]overlay.Entry, error) {
	all, err := p.cluster.ListOf(ctx, podbook.Owner(owner))
	return entriesOf(all), ofCluster(err)
}

func entriesOf(all []*cluster.Pod) []overlay.Entry {
	entries := make([]overlay.Entry, len(all))
	for i, pod := range all {
		at := overlay.Stamp{At: pod.Created.UTC()}
		entries[i] = overlay.Entry{ID: pod.Session, Problem: pod.Problem, Held: pod.Problem == "", State: overlay.State{
			ID: pod.Session, Kept: true, Status: overlay.StateReady, Created: at, LastUsed: at,
		}}
		switch {
		case pod.Problem != "":
			entries[i].State.Status = overlay.StateLost
		case pod.Starting:
			entries[i].State.Status, entries[i].Held = overlay.StateOpening, false
		}
	}
	return entries
}

// stop implements places.
func (p *pods) stop(ctx context.Context, name string) error {
	in, err := p.find(ctx, name)
	if err != nil {
		return err
	}
	began := time.Now()
	return errors.Join(in.because(ctx, began, in.stop(ctx, name)), in.release())
}

// rename implements places.
func (p *pods) rename(context.Context, string, string) error {
	return errNotOnPods("another name for a session", "save the session, and load the archive under the other name")
}

// remove implements places.
func (p *pods) remove(ctx context.Context, name string) error {
	uid, err := p.cluster.Remove(ctx, name)
	if err != nil {
		return ofCluster(err)
	}
	_ = p.own.records.Remove(name) // a leftover record belongs to no session
	for _, in := range p.known.Values() {
		if in.seen.Load().UID == uid {
			err = errors.Join(err, in.there.close())
		}
	}
	return err
}

// readLog implements places.
func (p *pods) readLog(ctx context.Context, name string, connections bool, each func([]byte) error) error {
	in, err := p.find(ctx, name)
	if err != nil {
		return err
	}
	return errors.Join(in.readLog(ctx, name, connections, each), in.release())
}

// Templates are of one machine, and a namespace is none.
func (p *pods) templates() ([]Template, error) { return p.own.templates() }
func (p *pods) findTemplate(ref, owner string) (Template, error) {
	return p.own.findTemplate(ref, owner)
}
func (p *pods) removeTemplate(ctx context.Context, id string) error {
	return p.own.removeTemplate(ctx, id)
}
func (p *pods) digest(tag string) *digest.Digester { return p.own.digest(tag) }

// close implements places.
func (p *pods) close() error {
	var errs []error
	for _, in := range p.known.Values() {
		errs = append(errs, in.there.close())
	}
	p.cluster.Close()
	return errors.Join(append(errs, p.own.close())...)
}
