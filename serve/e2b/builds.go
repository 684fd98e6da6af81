package e2b

import (
	"context"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/builds"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/tool"
)

// Builder builds templates that clients describe. Its methods may be called from many goroutines
// at once.
type Builder interface {
	// Build builds a template with the ID of b, all or nothing. An error of a step is a
	// [*builds.StepError].
	Build(ctx context.Context, b *Build) error
	// Tag adds tags to a template, which other templates of its owner and name lose, and
	// returns all of its tags.
	Tag(ctx context.Context, id string, tags []string) ([]string, error)
	// Untag removes tags from a template.
	Untag(ctx context.Context, id string, tags []string) error
}

// Build describes a template to build.
type Build struct {
	ID, Name, Owner string
	Tags            []string
	// Image and Template are the base: the name of an image, or the ID of the owner's template.
	// If both are "", it is the image of every sandbox.
	Image, Template string
	Recipe          builds.Recipe
	Start, Ready    string
	// Log gets a line of output, with the number of its step: 0 before the first, and the number
	// of steps plus 1 after the last.
	Log func(step int, line string)
}

// CreateTime bounds how long a sandbox may take to be ready: clients give up after a minute.
const CreateTime = createTime

// Bounds of builds.
const (
	buildsAtOnce   = 1
	buildsOfOwner  = 4         // that are not done
	buildsOfServer = 32        // that are not done
	buildKept      = time.Hour // for builds that never began, and for results
	maxUpload      = 1 << 30   // bytes of a build's files
	maxLog         = 1 << 20   // bytes of output that are kept
	maxLogLine     = 2 << 10   // bytes
	buildRoom      = 1 << 30   // bytes that a template is expected to take
	donePerOwner   = 8         // builds whose result is kept
	logPage        = 100       // lines of an answer
)

var buildTime = patience.For(30 * time.Minute)

// States of a build, as clients know them.
const (
	buildWaiting = "waiting"
	buildRunning = "building"
	buildReady   = "ready"
	buildFailed  = "error"
)

// yard holds the builds of a server.
type yard struct {
	server *Server
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	places chan struct{} // a token for each build that runs

	mu    sync.Mutex
	all   map[string]*build
	lanes map[string]chan struct{} // a token for the first build of each owner's
}

// build is a build that was requested.
type build struct {
	Build
	yard    *yard
	token   string // for uploads
	dir     string
	made    time.Time
	expires *time.Timer
	ctx     context.Context
	cancel  context.CancelFunc
	upload  chan struct{}         // held by the running upload
	size    int64                 // of the files; guarded by upload
	room    *registry.Reservation // of the files

	mu     sync.Mutex
	begun  bool
	status string
	lines  []logEntry
	logged int // bytes of lines
	ended  time.Time
	reason *reason
}

type logEntry struct {
	Timestamp string `json:"timestamp"`
	Level     string `json:"level"`
	Message   string `json:"message"`
	Step      string `json:"step,omitempty"`
}

type reason struct {
	Message string     `json:"message"`
	Step    string     `json:"step,omitempty"`
	Entries []logEntry `json:"logEntries"`
}

func newYard(s *Server) *yard {
	y := &yard{server: s, places: make(chan struct{}, buildsAtOnce), all: map[string]*build{}, lanes: map[string]chan struct{}{}}
	y.ctx, y.cancel = context.WithCancel(context.Background())
	return y
}

// stop ends all builds, and waits for them.
func (y *yard) stop() {
	y.cancel()
	y.mu.Lock()
	all := y.all
	y.all = map[string]*build{}
	y.mu.Unlock()
	y.tasks.Wait()
	for _, b := range all {
		b.clear()
	}
}

// clear removes a build's files.
func (b *build) clear() {
	b.expires.Stop()
	b.cancel()
	if err := os.RemoveAll(b.dir); err != nil {
		b.yard.server.opts.Log.Warn("remove the files of a build", "error", "the directory stays until the server starts again")
	}
	b.room.Release()
}

// drop forgets a build, and ends it if it is running.
func (y *yard) drop(b *build) {
	y.mu.Lock()
	delete(y.all, b.ID)
	y.mu.Unlock()
	b.clear()
}

// lane returns the channel on which an owner's builds wait for one another.
func (y *yard) lane(owner string) chan struct{} {
	y.mu.Lock()
	defer y.mu.Unlock()
	lane, ok := y.lanes[owner]
	if !ok {
		lane = make(chan struct{}, 1)
		y.lanes[owner] = lane
	}
	return lane
}

// find finds an owner's build. Builds of others are not found.
func (y *yard) find(id, owner string) (*build, bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	b, ok := y.all[id]
	if !ok || b.Owner != owner {
		return nil, false
	}
	return b, true
}

// add reserves a place for a build. If its owner has no other, the oldest build that was never begun loses its own.
func (y *yard) add(b *build, most int) error {
	replaced, err := y.place(b, most)
	if replaced != nil {
		replaced.clear()
	}
	return err
}

// place adds a build, and returns the one that it replaces, if any.
func (y *yard) place(b *build, most int) (replaced *build, err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	own, open := 0, 0
	var ended, idle []*build
	for _, other := range y.all {
		done, mine := other.done(), other.Owner == b.Owner
		if !done {
			open++
		}
		switch {
		case mine && done:
			ended = append(ended, other)
		case mine:
			own++
			if !other.isBegun() {
				idle = append(idle, other)
			}
		}
	}
	if own >= buildsOfOwner && len(idle) > 0 { // an idle build's client may have given up
		replaced = slices.MinFunc(idle, func(a, b *build) int { return a.made.Compare(b.made) })
		own, open = own-1, open-1
	}
	switch {
	case y.ctx.Err() != nil:
		return nil, fail(http.StatusServiceUnavailable, "the server is being stopped; try again")
	case own >= buildsOfOwner || own >= most:
		return nil, tool.Errorf(tool.Limit, "this key has %d builds that are not done, or as many snapshots and templates as it may; wait for one, or delete one", own)
	case open >= buildsOfServer:
		return nil, tool.Errorf(tool.Busy, "the server has %d builds that are not done; try again", open)
	}
	slices.SortFunc(ended, func(a, b *build) int { return a.ended.Compare(b.ended) })
	for len(ended) >= donePerOwner {
		delete(y.all, ended[0].ID)
		ended[0].expires.Stop()
		ended = ended[1:]
	}
	if replaced != nil {
		delete(y.all, replaced.ID)
	}
	y.all[b.ID] = b
	return replaced, nil
}

func (b *build) isBegun() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun
}

func (b *build) done() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.ended.IsZero()
}

// ifBuilds returns an action that is refused unless the server builds templates.
func (s *Server) ifBuilds(do action) action {
	if s.yard == nil {
		return s.noBuilds
	}
	return do
}

// buildRoutes returns the routes of builds, for requests with a key.
func (s *Server) buildRoutes() map[string]action {
	return map[string]action{
		"POST /v3/templates":                        s.ifBuilds(s.requestBuild),
		"GET /templates/{id}/files/{hash}":          s.ifBuilds(s.uploadLink),
		"POST /v2/templates/{id}/builds/{build}":    s.ifBuilds(s.startBuild),
		"GET /templates/{id}/builds/{build}/status": s.ifBuilds(s.buildStatus),
		"GET /templates/{id}/{what}":                s.ifBuilds(s.tagsOf), // a wildcard, because of GET /templates/aliases/{alias}
		"POST /templates/tags":                      s.ifBuilds(s.tag),
		"DELETE /templates/tags":                    s.ifBuilds(s.untag),
	}
}
