package e2b

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/builds"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/templates"
	"github.com/wisbox/wisbox/tool"
)

// Builder makes templates of what clients describe. The methods may be called from many
// goroutines at once.
type Builder interface {
	// Build makes a template with the ID of b: all or nothing. What is wrong with a step is
	// a [*builds.StepError].
	Build(ctx context.Context, b *Build) error
	// Tag gives a template more tags, which others of its owner and name lose, and returns
	// all that it has.
	Tag(ctx context.Context, id string, tags []string) ([]string, error)
	// Untag takes tags of a template.
	Untag(ctx context.Context, id string, tags []string) error
}

// Build is a template that is to be built.
type Build struct {
	ID, Name, Owner string
	Tags            []string
	// Image and Template are what it begins with, a name of an image or the ID of the
	// owner's template; without both the image of every sandbox.
	Image, Template string
	Recipe          builds.Recipe
	Start, Ready    string
	// Log gets a line of output, with the number of its step: 0 before the first, one more
	// than there are after the last.
	Log func(step int, line string)
}

// CreateTime bounds how long a sandbox may take to be ready: clients give up after a minute.
const CreateTime = createTime

// Bounds of builds.
const (
	buildsAtOnce   = 1
	buildsOfOwner  = 4  // that are not done
	buildsOfServer = 32 // that are not done
	buildTime      = 30 * time.Minute
	buildKept      = time.Hour // how long what isn't begun, and how it ended, is kept
	maxUpload      = 1 << 30   // bytes of a build's files
	maxLog         = 1 << 20   // bytes of output that are kept
	maxLogLine     = 2 << 10   // bytes
	buildRoom      = 1 << 30   // bytes that a template is expected to take
	donePerOwner   = 8         // builds whose end is kept
	logPage        = 100       // lines of an answer
)

// States of a build, as clients know them.
const (
	buildWaiting = "waiting"
	buildRunning = "building"
	buildReady   = "ready"
	buildFailed  = "error"
)

// yard has the builds of a server.
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

// build is one that was asked for.
type build struct {
	Build
	yard    *yard
	token   string // that uploads show
	dir     string
	made    time.Time
	expires *time.Timer
	ctx     context.Context
	cancel  context.CancelFunc
	upload  chan struct{} // held by the one that runs
	size    int64         // of the files; of who holds upload

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

// clear removes what a build has on the disk.
func (b *build) clear() {
	b.expires.Stop()
	b.cancel()
	if err := os.RemoveAll(b.dir); err != nil {
		b.yard.server.opts.Log.Warn("remove the files of a build", "error", "the directory stays until the server starts again")
	}
}

// drop forgets a build, which ends where it runs.
func (y *yard) drop(b *build) {
	y.mu.Lock()
	delete(y.all, b.ID)
	y.mu.Unlock()
	b.clear()
}

// lane is where an owner's builds wait for one another.
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

// find finds an owner's build. Those of others aren't there.
func (y *yard) find(id, owner string) (*build, bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	b, ok := y.all[id]
	if !ok || b.Owner != owner {
		return nil, false
	}
	return b, true
}

// add takes a place for a build.
func (y *yard) add(b *build, most int) error {
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
	if own >= buildsOfOwner && len(idle) > 0 { // its client may have given up
		oldest := slices.MinFunc(idle, func(a, b *build) int { return a.made.Compare(b.made) })
		delete(y.all, oldest.ID)
		oldest.clear()
		own, open = own-1, open-1
	}
	switch {
	case y.ctx.Err() != nil:
		return fail(http.StatusServiceUnavailable, "the server is being stopped; try again")
	case own >= buildsOfOwner || own >= most:
		return tool.Errorf(tool.Limit, "this key has %d builds that are not done, or as many snapshots and templates as it may; wait for one, or delete one", own)
	case open >= buildsOfServer:
		return tool.Errorf(tool.Busy, "the server has %d builds that are not done; try again", open)
	}
	slices.SortFunc(ended, func(a, b *build) int { return a.ended.Compare(b.ended) })
	for len(ended) >= donePerOwner {
		delete(y.all, ended[0].ID)
		ended[0].expires.Stop()
		ended = ended[1:]
	}
	y.all[b.ID] = b
	return nil
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

// ifBuilds is what a server does that builds templates.
func (s *Server) ifBuilds(do action) action {
	if s.yard == nil {
		return s.noBuilds
	}
	return do
}

// buildRoutes are those of builds, for who has a key.
func (s *Server) buildRoutes() map[string]action {
	return map[string]action{
		"POST /v3/templates":                        s.ifBuilds(s.requestBuild),
		"GET /templates/{id}/files/{hash}":          s.ifBuilds(s.uploadLink),
		"POST /v2/templates/{id}/builds/{build}":    s.ifBuilds(s.startBuild),
		"GET /templates/{id}/builds/{build}/status": s.ifBuilds(s.buildStatus),
		"GET /templates/{id}/{what}":                s.ifBuilds(s.tagsOf), // GET /templates/aliases/{alias} is there, too
		"POST /templates/tags":                      s.ifBuilds(s.tag),
		"DELETE /templates/tags":                    s.ifBuilds(s.untag),
	}
}

type buildBody struct {
	Name string   `json:"name"`
	Tags []string `json:"tags"`
}

type buildAnswer struct {
	TemplateID string   `json:"templateID"`
	BuildID    string   `json:"buildID"`
	Public     bool     `json:"public"`
	Names      []string `json:"names"`
	Aliases    []string `json:"aliases"`
	Tags       []string `json:"tags"`
}

// requestBuild makes a build, whose files and steps come later.
func (s *Server) requestBuild(c call) (int, any, error) {
	var body buildBody
	if err := decode(c.w, c.r, &body); err != nil {
		return 0, nil, err
	}
	name, tags, err := nameAndTags(body)
	if err != nil {
		return 0, nil, err
	}
	if err := s.mayStart(c.key); err != nil {
		return 0, nil, err
	}
	own, disk := s.snapshotsOf(c.key.Owner)
	if c.key.Disk > 0 && disk+s.opts.Registry.Taken(c.key.Owner).Disk >= c.key.Disk {
		return 0, nil, tool.Errorf(tool.Limit, "this key's sandboxes, snapshots and templates take all the disk that they may; delete one first, or ask for a larger limit")
	}
	b := &build{
		Build: Build{ID: strings.ToLower(rand.Text())[:20], Name: name, Owner: c.key.Owner, Tags: tags},
		yard:  s.yard, token: rand.Text(), made: time.Now(), status: buildWaiting, upload: make(chan struct{}, 1),
	}
	b.dir = filepath.Join(s.opts.BuildDir, b.ID)
	b.ctx, b.cancel = context.WithCancel(s.yard.ctx)
	b.expires = time.AfterFunc(buildKept, func() { s.yard.drop(b) })
	err = s.yard.add(b, s.opts.Snapshots-len(own))
	if err == nil {
		err = os.Mkdir(b.dir, 0o700)
	}
	if err != nil {
		s.yard.drop(b)
		return 0, nil, err
	}
	return http.StatusAccepted, buildAnswer{TemplateID: b.ID, BuildID: b.ID, Names: []string{name}, Aliases: []string{name}, Tags: tags}, nil
}

// nameAndTags are what a template is to be called by: its name may have a tag.
func nameAndTags(body buildBody) (name string, tags []string, err error) {
	name, tag, ok := strings.Cut(body.Name, ":")
	tags = slices.Clone(body.Tags)
	if ok || len(tags) == 0 {
		if !ok {
			tag = templates.DefaultTag
		}
		tags = append([]string{tag}, tags...)
	}
	slices.Sort(tags)
	tags = slices.Compact(tags)
	if err := templates.CheckName(name); err != nil {
		return "", nil, err
	}
	if isTemplate(name) {
		return "", nil, fail(http.StatusBadRequest, "name is that of a template that every key has; take another one")
	}
	return name, tags, checkTags(tags)
}

const maxTags = 32

func checkTags(tags []string) error {
	if len(tags) == 0 || len(tags) > maxTags {
		return fail(http.StatusBadRequest, fmt.Sprintf("tags has %d entries; it must have 1 to %d", len(tags), maxTags))
	}
	for _, tag := range tags {
		if err := templates.CheckTag(tag); err != nil {
			return err
		}
	}
	return nil
}

var (
	errNoBuild = fail(http.StatusNotFound, "there is no such build; builds are kept for an hour")
	errBegun   = fail(http.StatusConflict, "the build has begun; ask for another one")
	hashForm   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// waiting finds a build of a call that hasn't begun yet.
func (s *Server) waiting(c call) (*build, error) {
	b, ok := s.yard.find(c.r.PathValue("id"), c.key.Owner)
	if !ok {
		return nil, errNoBuild
	}
	if b.isBegun() {
		return nil, errBegun
	}
	return b, nil
}

// uploadLink says where the files of a COPY are to be sent. They are a build's own: nobody
// learns whether another one has them.
func (s *Server) uploadLink(c call) (int, any, error) {
	b, err := s.waiting(c)
	if err != nil {
		return 0, nil, err
	}
	hash := c.r.PathValue("hash")
	if !hashForm.MatchString(hash) {
		return 0, nil, fail(http.StatusBadRequest, "the hash must be 64 lower-case hexadecimal digits")
	}
	_, err = os.Stat(filepath.Join(b.dir, hash))
	to := url.URL{Scheme: schemeOf(c.r), Host: c.r.Host, Path: "/templates/" + b.ID + "/files/" + hash, RawQuery: url.Values{"token": {b.token}}.Encode()}
	return http.StatusCreated, struct {
		Present bool   `json:"present"`
		URL     string `json:"url"`
	}{err == nil, to.String()}, nil
}

// schemeOf is the one by which the client came here, or to a proxy.
func schemeOf(r *http.Request) string {
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		return "https"
	}
	return "http"
}

// receive takes files of a build from who shows its token: clients send no key with them.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) {
	if s.yard == nil {
		writeFailure(w, fail(http.StatusNotFound, "this server builds no templates"))
		return
	}
	s.yard.mu.Lock()
	b, ok := s.yard.all[r.PathValue("id")]
	s.yard.mu.Unlock()
	if !ok || subtle.ConstantTimeCompare([]byte(b.token), []byte(r.URL.Query().Get("token"))) != 1 || !s.enter() {
		writeFailure(w, fail(http.StatusUnauthorized, "the build or its token is unknown; ask for a link again"))
		return
	}
	defer s.calls.Done()
	httpguard.LetIn(r)
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Time{})
	defer context.AfterFunc(b.ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })() // its client may send no more
	if err := b.receive(r, r.PathValue("hash")); err != nil {
		f := failureOf(err)
		s.note(w, f)
		w.Header().Set("Connection", "close") // the body may still be on its way
		writeFailure(w, f)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// receive keeps the files of a COPY, one after the other.
func (b *build) receive(r *http.Request, hash string) (err error) {
	if !hashForm.MatchString(hash) {
		return fail(http.StatusBadRequest, "the hash must be 64 lower-case hexadecimal digits")
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	select {
	case b.upload <- struct{}{}:
		defer func() { <-b.upload }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if b.isBegun() {
		return errBegun
	}
	f, err := os.CreateTemp(b.dir, "upload-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	size, err := builds.Clean(ctx, http.MaxBytesReader(nil, r.Body, maxUpload+maxBody), f, maxUpload-b.size)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	file := filepath.Join(b.dir, hash)
	if old, err := os.Stat(file); err == nil {
		size -= old.Size()
	}
	b.size += size
	return os.Rename(f.Name(), file)
}

type startBody struct {
	Start        string          `json:"startCmd"`
	Ready        string          `json:"readyCmd"`
	FromImage    string          `json:"fromImage"`
	FromTemplate string          `json:"fromTemplate"`
	Registry     map[string]any  `json:"fromImageRegistry"`
	Steps        []startBodyStep `json:"steps"`
}

type startBodyStep struct {
	Type  string   `json:"type"`
	Args  []string `json:"args"`
	Files string   `json:"filesHash"`
}

// startBuild begins a build whose files are there.
func (s *Server) startBuild(c call) (int, any, error) {
	b, err := s.waiting(c)
	if err != nil {
		return 0, nil, err
	}
	var body startBody
	if err := decode(c.w, c.r, &body); err != nil {
		return 0, nil, err
	}
	wanted := Build{ID: b.ID, Name: b.Name, Owner: b.Owner, Tags: b.Tags, Start: body.Start, Ready: body.Ready, Log: b.log}
	if err := s.baseOf(&wanted, &body); err != nil {
		return 0, nil, err
	}
	if wanted.Recipe.Steps, err = b.steps(body.Steps); err != nil {
		return 0, nil, err
	}
	if err := wanted.Recipe.Check(); err != nil {
		return 0, nil, err
	}
	select {
	case b.upload <- struct{}{}:
		defer func() { <-b.upload }()
	default:
		return 0, nil, fail(http.StatusConflict, "files of the build are still on their way; wait for them, and begin again")
	}
	b.mu.Lock()
	begun := b.begun
	b.begun = true
	b.expires.Stop()
	b.mu.Unlock()
	if begun {
		return 0, nil, errBegun
	}
	quota := s.quota(c.key)
	quota.Snapshots = s.opts.Snapshots
	s.yard.tasks.Go(func() { b.run(&wanted, quota) })
	return http.StatusAccepted, nil, nil
}

const maxCommand = 32 << 10 // bytes of a start or ready command

// ofE2B is the image that clients begin with who name none.
var ofE2B = regexp.MustCompile(`^(docker\.io/)?e2bdev/(base|code-interpreter)(:[A-Za-z0-9._-]*)?$`)

// baseOf finds what a build begins with.
func (s *Server) baseOf(b *Build, body *startBody) error {
	switch {
	case len(body.Registry) > 0:
		return fail(http.StatusBadRequest, "fromImageRegistry is not offered: nothing is fetched; leave it out, and name an image that the server's machine has")
	case len(body.Start) > maxCommand || len(body.Ready) > maxCommand || strings.Contains(body.Start+body.Ready, "\x00"):
		return fail(http.StatusBadRequest, fmt.Sprintf("startCmd or readyCmd has a NUL, or more than %d bytes", maxCommand))
	case body.FromTemplate != "" && !isTemplate(body.FromTemplate):
		t, err := s.snapshotOf(body.FromTemplate, b.Owner)
		if err != nil {
			return err
		}
		if !t.Built {
			return fail(http.StatusBadRequest, "fromTemplate is a snapshot of a sandbox, with files and no image of its own; begin with a template that was built")
		}
		b.Template, b.Recipe.Inherit = t.ID, true
	case !ofE2B.MatchString(body.FromImage):
		b.Image = body.FromImage
	}
	return nil
}

// steps are those of a body, with their files.
func (b *build) steps(all []startBodyStep) ([]builds.Step, error) {
	steps, sum := make([]builds.Step, len(all)), int64(0)
	for i, one := range all {
		steps[i] = builds.Step{Kind: one.Type, Args: one.Args}
		if one.Type != builds.Copy {
			continue
		}
		if !hashForm.MatchString(one.Files) {
			return nil, fail(http.StatusBadRequest, fmt.Sprintf("steps[%d]: filesHash must be 64 lower-case hexadecimal digits", i))
		}
		steps[i].Files = filepath.Join(b.dir, one.Files)
		info, err := os.Stat(steps[i].Files)
		if err != nil {
			return nil, fail(http.StatusBadRequest, fmt.Sprintf("steps[%d]: its files were not sent; ask for a link, and send them", i))
		}
		if sum += info.Size(); sum > maxUpload {
			return nil, fail(http.StatusBadRequest, fmt.Sprintf("steps[%d]: the steps copy more than 1 GiB together; copy less, or the same files once", i))
		}
	}
	return steps, nil
}

// run builds, when its turn comes: an owner's builds wait for one another before they wait
// for those of others, and waiting is no part of a build's time.
func (b *build) run(wanted *Build, quota registry.Quota) {
	defer func() { _ = os.RemoveAll(b.dir) }()
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
		err = tool.Errorf(tool.Timeout, "the build took longer than %s; have it do less", buildTime)
	}
	b.end(wanted, err)
}

// make makes the template. It removes one again that takes more disk than there is for its
// owner, or that was deleted meanwhile.
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

// end says how a build ended.
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

// stepName is a step as clients call it.
func stepName(step, last int) string {
	switch {
	case step == 0:
		return "base"
	case step > last:
		return "finalize"
	}
	return strconv.Itoa(step)
}

// log keeps a line of output.
func (b *build) log(step int, line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.logged > maxLog:
	case b.logged+len(line) > maxLog:
		b.logged = maxLog + 1
		b.append("warn", strconv.Itoa(step), "the log has no room for more lines; have the steps write less, or into a file")
	default:
		b.append("info", strconv.Itoa(step), line)
	}
}

// lineCost are bytes of a line beside its text.
const lineCost = 100

func (b *build) append(level, step, line string) {
	if len(line) > maxLogLine {
		line = line[:maxLogLine] + "…"
	}
	b.logged += len(line) + lineCost
	b.lines = append(b.lines, logEntry{time.Now().UTC().Format(milliseconds), level, strings.ToValidUTF8(line, ""), step})
}

type statusAnswer struct {
	TemplateID string     `json:"templateID"`
	BuildID    string     `json:"buildID"`
	Status     string     `json:"status"`
	Logs       []string   `json:"logs"`
	Entries    []logEntry `json:"logEntries"`
	Reason     *reason    `json:"reason,omitempty"`
}

// buildStatus says how far a build is, and what it said from a line on.
func (s *Server) buildStatus(c call) (int, any, error) {
	from := 0
	if text := c.r.URL.Query().Get("logsOffset"); text != "" {
		var err error
		if from, err = strconv.Atoi(text); err != nil || from < 0 {
			return 0, nil, fail(http.StatusBadRequest, "logsOffset must be a number from 0 on")
		}
	}
	id := c.r.PathValue("build")
	b, ok := s.yard.find(id, c.key.Owner)
	if !ok || id != c.r.PathValue("id") {
		if t, err := s.snapshotOf(id, c.key.Owner); err == nil && t.Built && id == c.r.PathValue("id") {
			return http.StatusOK, statusAnswer{t.ID, t.ID, buildReady, []string{}, []logEntry{}, nil}, nil
		}
		return 0, nil, errNoBuild
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	page := b.lines[min(from, len(b.lines)):]
	page = slices.Clone(page[:min(logPage, len(page))])
	a := statusAnswer{b.ID, b.ID, b.status, []string{}, append([]logEntry{}, page...), b.reason}
	for _, e := range page {
		a.Logs = append(a.Logs, e.Message)
	}
	return http.StatusOK, a, nil
}

type tagsBody struct {
	Target string   `json:"target"`
	Name   string   `json:"name"`
	Tags   []string `json:"tags"`
}

// tag gives a built template more tags.
func (s *Server) tag(c call) (int, any, error) {
	var body tagsBody
	if err := decode(c.w, c.r, &body); err != nil {
		return 0, nil, err
	}
	if err := checkTags(body.Tags); err != nil {
		return 0, nil, err
	}
	t, err := s.builtOf(body.Target, c.key.Owner)
	if err != nil {
		return 0, nil, err
	}
	if len(t.Tags)+len(body.Tags) > maxTags {
		return 0, nil, fail(http.StatusBadRequest, fmt.Sprintf("the template would have more than %d tags; remove some first", maxTags))
	}
	tags, err := s.opts.Builder.Tag(c.r.Context(), t.ID, body.Tags)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, struct {
		BuildID string   `json:"buildID"`
		Tags    []string `json:"tags"`
	}{t.ID, tags}, nil
}

func (s *Server) builtOf(ref, owner string) (templates.Template, error) {
	t, err := s.snapshotOf(ref, owner)
	if err == nil && !t.Built {
		err = errNoTemplate
	}
	return t, err
}

// untag takes tags of the built templates of a name.
func (s *Server) untag(c call) (int, any, error) {
	var body tagsBody
	if err := decode(c.w, c.r, &body); err != nil {
		return 0, nil, err
	}
	if err := checkTags(body.Tags); err != nil {
		return 0, nil, err
	}
	name, _, _ := strings.Cut(body.Name, ":")
	family := s.family(name, c.key.Owner)
	if len(family) == 0 {
		return 0, nil, errNoTemplate
	}
	for _, t := range family {
		if err := s.opts.Builder.Untag(c.r.Context(), t.ID, body.Tags); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusNoContent, nil, nil
}

// family are an owner's built templates of a name.
func (s *Server) family(name, owner string) []templates.Template {
	own, _ := s.snapshotsOf(owner)
	return slices.DeleteFunc(own, func(t templates.Template) bool { return !t.Built || t.Name != name })
}

type tagAnswer struct {
	Tag       string `json:"tag"`
	BuildID   string `json:"buildID"`
	CreatedAt string `json:"createdAt"`
}

// tagsOf are the tags of all templates of a name.
func (s *Server) tagsOf(c call) (int, any, error) {
	if c.r.PathValue("what") != "tags" {
		return s.unknownPath(c)
	}
	name, _ := templates.SplitTag(c.r.PathValue("id"))
	if t, err := s.builtOf(name, c.key.Owner); err == nil {
		name = t.Name
	}
	family := s.family(name, c.key.Owner)
	if len(family) == 0 {
		return 0, nil, errNoTemplate
	}
	all := []tagAnswer{}
	for _, t := range family {
		for _, tag := range t.Tags {
			all = append(all, tagAnswer{tag, t.ID, t.Created.UTC().Format(milliseconds)})
		}
	}
	return http.StatusOK, all, nil
}
