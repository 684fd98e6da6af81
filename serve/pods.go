package serve

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/wisbox/wisbox/cluster"
	"github.com/wisbox/wisbox/internal/podbook"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/serve/e2b"
	"github.com/wisbox/wisbox/tool"
)

// maxTimeout is the default maximum lifetime of a sandbox.
const maxTimeout = 24 * time.Hour

// podEngine creates a Pod for each sandbox, with the sandbox's record on it.
type podEngine struct {
	*engine
	book *podbook.Book
	life time.Duration // after this, the cluster ends a Pod even without a server
}

// overPods configures the server to run sandboxes as Pods, which it shares with other servers.
func (s *Server) overPods(place cluster.Place, records *registry.Options, api *e2b.Options) error {
	if err := s.checkPods(); err != nil {
		return err
	}
	book, err := podbook.New(place, s.opts.Secret, s.opts.Log)
	if err != nil {
		return err
	}
	life := cmp.Or(s.opts.MaxTimeout, maxTimeout)
	records.Engine = &podEngine{records.Engine.(*engine), book, life}
	s.book = book
	records.Book, records.Secret, records.MaxLife = book, s.opts.Secret, life
	records.Kept = func() (int64, error) { return 0, nil }
	api.Pauses, api.Templates = false, nil
	return nil
}

// checkPods rejects options that Pods don't support.
func (s *Server) checkPods() error {
	for _, o := range []struct {
		field, instead string
		asked          bool
	}{
		{"ready", "leave it out: a Pod takes a second or two", s.opts.Ready > 0},
		{"allow-builds", "build an image and give it as --image", s.opts.Builds},
		{"allow-internet", "the network of Pods is limited by a NetworkPolicy of the cluster", s.opts.Internet},
		{"total-disk", "give the namespace a ResourceQuota", s.opts.Disk > 0},
	} {
		if o.asked {
			return tool.Errorf(tool.Unsupported, "--%s isn't supported for sandboxes on Kubernetes; %s", o.field, o.instead).In(o.field)
		}
	}
	return nil
}

// Create implements [registry.Engine].
func (e *podEngine) Create(ctx context.Context, r registry.Record) (registry.Box, error) {
	o := e.options()
	o.Name, o.TTL = e.book.Session(r.ID), e.life
	var err error
	if o.Pod, err = e.book.Notes(r); err != nil {
		return nil, err
	}
	s, err := e.m.Open(ctx, &o)
	if err != nil {
		return nil, podbook.Explain(err)
	}
	if err := begin(ctx, s); err != nil {
		return nil, errors.Join(podbook.Explain(err), s.Close(context.WithoutCancel(ctx))) // the registry removes the session
	}
	return common{Session: s}, nil
}

// Open implements [registry.Engine]. MCP clients see its errors as they are.
func (e *podEngine) Open(ctx context.Context, id string) (registry.Box, error) {
	s, err := e.m.Attach(ctx, e.book.Session(id))
	if tool.KindOf(err) == tool.Closed { // the Pod has ended, or its name was reused
		return nil, tool.Errorf(tool.NotFound, "the sandbox is gone").Because(err)
	}
	if err != nil {
		return nil, podbook.Hide(podbook.Explain(err))
	}
	return common{Session: s}, nil
}
