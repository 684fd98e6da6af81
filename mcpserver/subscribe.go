package mcpserver

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/vfs"
)

const (
	maxSubscriptions = 256                    // of one client in one session
	maxURIs          = 256 << 10              // bytes of their URIs
	tellEvery        = 200 * time.Millisecond // minimum interval; changes in between are reported together
)

// watches holds the clients' subscriptions by session.
type watches struct {
	mu  sync.Mutex
	all map[watchKey]*watch
}

type watchKey struct {
	conn    *mcp.ServerSession
	session string
}

// watch holds one client's subscriptions in one session.
type watch struct {
	uris  map[string]string // subscribed URI -> path, "" if any change matters
	bytes int               // of the URIs
	stop  func()
}

// subscribe starts to watch a resource. Resources that Extend added can't be watched.
func (r *resources) subscribe(ctx context.Context, req *mcp.SubscribeRequest) error {
	uri := req.Params.URI
	name, kind, rest, ok := splitURI(uri)
	switch {
	case !ok && r.server.opts.Extend != nil && !strings.HasPrefix(uri, scheme+":"):
		return nil
	case !ok || kind == "output":
		return mcp.ResourceNotFoundError(uri)
	}
	path := ""
	if kind == "file" {
		path = strings.Trim(rest, "/")
	}
	key := watchKey{req.Session, name}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.all[key]
	if w == nil {
		var err error
		if w, err = r.watch(ctx, key, uri); err != nil {
			return err
		}
	}
	if _, known := w.uris[uri]; !known && (len(w.uris) == maxSubscriptions || w.bytes+len(uri) > maxURIs) {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "256 resources, or URIs of 256 KiB, are subscribed to, the maximum; unsubscribe from others first"}
	} else if !known {
		w.bytes += len(uri)
	}
	w.uris[uri] = path
	return nil
}

// watch starts to report the changes of a session, until the session, the last subscription or the connection ends.
func (r *resources) watch(ctx context.Context, key watchKey, uri string) (*watch, error) {
	session, done, err := r.find(key.conn, ownerFrom(ctx), key.session)
	if err != nil {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	followed := false
	defer func() { // even if the session panics
		if !followed {
			done()
		}
	}()
	watched, ok := As[Watched](session)
	if !ok {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "this session doesn't report changes"}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // the request ends, the subscription stays
	changes, err := watched.Watch(ctx, "/")
	if err != nil {
		stop()
		return nil, resourceError(uri, err)
	}
	w := &watch{uris: map[string]string{}, stop: stop}
	if r.all == nil {
		r.all = map[watchKey]*watch{}
	}
	r.all[key] = w
	followed = true
	go func() {
		defer done()
		defer stop()
		r.follow(w, changes)
		r.forget(key, w)
	}()
	return w, nil
}

// unsubscribe ends a subscription; it ignores an unknown one.
func (r *resources) unsubscribe(_ context.Context, req *mcp.UnsubscribeRequest) error {
	name, _, _, ok := splitURI(req.Params.URI)
	if !ok {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := watchKey{req.Session, name}
	if w := r.all[key]; w != nil {
		if _, known := w.uris[req.Params.URI]; known {
			w.bytes -= len(req.Params.URI)
		}
		if delete(w.uris, req.Params.URI); len(w.uris) == 0 {
			w.stop()
			delete(r.all, key)
		}
	}
	return nil
}

// unwatch ends the subscriptions of a connection that has ended.
func (w *watches) unwatch(conn *mcp.ServerSession) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, one := range w.all {
		if key.conn == conn {
			one.stop()
			delete(w.all, key)
		}
	}
}

func (w *watches) forget(key watchKey, one *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all[key] == one {
		delete(w.all, key)
	}
}

// follow reports changes until the channel is closed. While a client is slow, the session collects the changes.
func (r *resources) follow(w *watch, changes <-chan vfs.Change) {
	for change := range changes { // an overflow has no path, which means any
		touched := map[string]bool{}
		r.touch(w, change.Path, touched)
		pause := time.After(tellEvery)
		for gathering := true; gathering; {
			select {
			case change, more := <-changes:
				if gathering = more; more {
					r.touch(w, change.Path, touched)
				}
			case <-pause:
				gathering = false
			}
		}
		for uri := range touched {
			_ = r.sdk.ResourceUpdated(context.Background(), &mcp.ResourceUpdatedNotificationParams{URI: uri})
		}
	}
}

// touch adds the URIs that a change of path affects.
func (r *resources) touch(w *watch, path string, to map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uri, watched := range w.uris {
		if path == "" || watched == "" || watched == path {
			to[uri] = true
		}
	}
}
