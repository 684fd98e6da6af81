package e2b

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/builds"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/templates"
	"github.com/wisbox/wisbox/tool"
)

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

// requestBuild creates a build. Its files and steps come later.
func (s *Server) requestBuild(c call) (int, any, error) {
	var body buildBody
	if err := decode(c.r, &body); err != nil {
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
		return 0, nil, tool.Errorf(tool.Limit, "this key's sandboxes, snapshots and templates have reached its limit of disk; delete one first, or ask for a larger limit")
	}
	b := &build{
		Build: Build{ID: strings.ToLower(rand.Text())[:20], Name: name, Owner: c.key.Owner, Tags: tags},
		yard:  s.yard, token: rand.Text(), made: time.Now(), status: buildWaiting, upload: make(chan struct{}, 1),
		room: s.opts.Registry.ReserveFiles(c.key.Owner, s.quota(c.key)),
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

// nameAndTags returns a template's name and tags. The name in a request may end with a tag.
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
	if IsTemplate(name) {
		return "", nil, fail(http.StatusBadRequest, "name is reserved for a template that every key has; use another one")
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
	errNoBuild = fail(http.StatusNotFound, "build not found; builds are kept for an hour")
	errBegun   = fail(http.StatusConflict, "the build has already begun; request another one")
	hashForm   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{64}$`) })
)

// waiting finds the build of a call, which must not have begun.
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

// uploadLink returns the URL for the files of a COPY. Builds don't share files, so a client can't learn whether another
// build has the same ones.
func (s *Server) uploadLink(c call) (int, any, error) {
	b, err := s.waiting(c)
	if err != nil {
		return 0, nil, err
	}
	hash := c.r.PathValue("hash")
	if !hashForm().MatchString(hash) {
		return 0, nil, fail(http.StatusBadRequest, "the hash must be 64 lower-case hexadecimal digits")
	}
	_, err = os.Stat(filepath.Join(b.dir, hash))
	to := url.URL{Scheme: schemeOf(c.r), Host: c.r.Host, Path: "/templates/" + b.ID + "/files/" + hash, RawQuery: url.Values{"token": {b.token}}.Encode()}
	return http.StatusCreated, struct {
		Present bool   `json:"present"`
		URL     string `json:"url"`
	}{err == nil, to.String()}, nil
}

// schemeOf returns the scheme that the client used, for this server or for a proxy before it.
func schemeOf(r *http.Request) string {
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		return "https"
	}
	return "http"
}

// receive accepts files of a build. It requires the build's token, since clients send no key with files.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) {
	if s.yard == nil {
		writeFailure(w, fail(http.StatusNotFound, "this server doesn't build templates"))
		return
	}
	s.yard.mu.Lock()
	b, ok := s.yard.all[r.PathValue("id")]
	s.yard.mu.Unlock()
	if !ok || !httpguard.Same(r.URL.Query().Get("token"), b.token) || !s.enter() {
		writeFailure(w, fail(http.StatusUnauthorized, "the build or its token is unknown; request a link again"))
		return
	}
	defer s.calls.Done()
	if err := httpguard.LetIn(r, ClientOf(b.Owner)); err != nil {
		writeFailure(w, failureOf(err))
		return
	}
	defer context.AfterFunc(b.ctx, func() { // its client may send no more
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
	})()
	if err := b.receive(r, r.PathValue("hash")); err != nil {
		f := failureOf(err)
		s.note(w, f)
		w.Header().Set("Connection", "close") // the body may still be on its way
		writeFailure(w, f)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// receive stores the files of a COPY. Uploads of a build are serialized.
func (b *build) receive(r *http.Request, hash string) (err error) {
	if !hashForm().MatchString(hash) {
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
	stored := &reserving{ctx: ctx, w: f, room: b.room}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			stored.trim(0)
		}
	}()
	size, err := builds.Clean(ctx, http.MaxBytesReader(nil, r.Body, maxUpload+maxBody), stored, maxUpload-b.size)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	file, old := filepath.Join(b.dir, hash), int64(0)
	if replaced, err := os.Stat(file); err == nil {
		old = replaced.Size()
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return err
	}
	b.size += size - old
	stored.trim(size - old)
	return nil
}

// reserving reserves disk for what it writes, before it does.
type reserving struct {
	ctx            context.Context
	w              io.Writer
	room           *registry.Reservation
	size, reserved int64
}

const reserveStep = 16 << 20 // bytes

func (v *reserving) Write(data []byte) (int, error) {
	if more := v.size + int64(len(data)) - v.reserved; more > 0 {
		err := v.room.Grow(v.ctx, max(more, reserveStep))
		if err == nil {
			v.reserved += max(more, reserveStep)
		} else if err = v.room.Grow(v.ctx, more); err == nil { // the last bytes that are left
			v.reserved += more
		}
		if err != nil {
			return 0, err
		}
	}
	n, err := v.w.Write(data)
	v.size += int64(n)
	return n, err
}

// trim keeps the reservation of size bytes alone.
func (v *reserving) trim(size int64) {
	_ = v.room.Grow(context.WithoutCancel(v.ctx), size-v.reserved) // a build that is gone has none
}
