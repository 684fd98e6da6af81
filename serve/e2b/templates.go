package e2b

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/templates"
	"github.com/wisbox/wisbox/tool"
)

// The built-in templates. Both are the same image.
const (
	baseTemplate = "base"
	codeTemplate = "code-interpreter-v1"
)

// IsTemplate reports whether name is a built-in template, which every key has.
func IsTemplate(name string) bool { return name == baseTemplate || name == codeTemplate }

type templateAnswer struct {
	TemplateID  string   `json:"templateID"`
	BuildID     string   `json:"buildID"`
	CPUCount    int      `json:"cpuCount"`
	MemoryMB    int64    `json:"memoryMB"`
	DiskSizeMB  int64    `json:"diskSizeMB"`
	Public      bool     `json:"public"`
	Aliases     []string `json:"aliases"`
	Names       []string `json:"names"`
	CreatedAt   string   `json:"createdAt"`
	UpdatedAt   string   `json:"updatedAt"`
	LastSpawned *string  `json:"lastSpawnedAt"`
	SpawnCount  int      `json:"spawnCount"`
	BuildCount  int      `json:"buildCount"`
	CreatedBy   *string  `json:"createdBy"`
	EnvdVersion string   `json:"envdVersion"`
	BuildStatus string   `json:"buildStatus"`
}

// template describes a template, with the sizes that every sandbox has.
func (s *Server) template(id string, names []string, made time.Time, public bool) templateAnswer {
	when := made.UTC().Format(milliseconds)
	return templateAnswer{
		TemplateID: id, BuildID: id, CPUCount: s.opts.Size.cpuCount(), MemoryMB: s.opts.Size.MemoryMB, DiskSizeMB: s.opts.Size.DiskMB,
		Public: public, Aliases: names, Names: names, CreatedAt: when, UpdatedAt: when, BuildCount: 1, EnvdVersion: envdVersion, BuildStatus: "ready",
	}
}

func (s *Server) listTemplates(c call) (int, any, error) {
	all := []templateAnswer{}
	for _, name := range []string{baseTemplate, codeTemplate} {
		all = append(all, s.template(name, []string{name}, time.Unix(0, 0), true))
	}
	own, _ := s.snapshotsOf(c.key.Owner)
	for _, t := range own {
		all = append(all, s.template(t.ID, names(t), t.Created, false))
	}
	return http.StatusOK, all, nil
}

func names(t templates.Template) []string {
	if t.Name == "" {
		return []string{}
	}
	return []string{t.Name}
}

func (s *Server) templateOf(c call) (int, any, error) {
	id, err := s.resolve(c.r.PathValue("alias"), c.key.Owner)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, struct {
		TemplateID string `json:"templateID"`
		Public     bool   `json:"public"`
	}{id, IsTemplate(id)}, nil
}

var errNoTemplate = fail(http.StatusNotFound, "template or snapshot not found; use "+baseTemplate)

// resolve finds a template by a client's reference: a built-in name, or the ID or name of a snapshot of its owner.
// Snapshots of others are not found.
func (s *Server) resolve(ref, owner string) (id string, err error) {
	switch {
	case ref == "":
		return baseTemplate, nil
	case IsTemplate(ref):
		return ref, nil
	}
	t, err := s.snapshotOf(ref, owner)
	return t.ID, err
}

// snapshotOf finds an owner's snapshot by its ID or name.
func (s *Server) snapshotOf(ref, owner string) (templates.Template, error) {
	if s.opts.Templates == nil {
		return templates.Template{}, errNoTemplate
	}
	t, err := s.opts.Templates.Find(ref, owner)
	if tool.KindOf(err) == tool.NotFound || err == nil && t.Owner != owner {
		return templates.Template{}, errNoTemplate
	}
	return t, err
}

// snapshotsOf returns an owner's snapshots, the newest first, and the disk that they take.
func (s *Server) snapshotsOf(owner string) (own []templates.Template, disk int64) {
	if s.opts.Templates == nil {
		return nil, 0
	}
	all, err := s.opts.Templates.List()
	for _, t := range all {
		if t.Owner == owner {
			own = append(own, t)
			disk += t.Disk
		}
	}
	if err != nil { // a snapshot is unreadable; all contains the others
		s.opts.Log.Warn("list the snapshots", "error", registry.Quiet(err))
	}
	return own, disk
}

type snapshotAnswer struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

func (s *Server) listSnapshots(c call) (int, any, error) {
	query := c.r.URL.Query()
	limit := maxPage
	if text := query.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxPage {
			return 0, nil, fail(http.StatusBadRequest, fmt.Sprintf("limit must be 1 to %d", maxPage))
		}
	}
	own, _ := s.snapshotsOf(c.key.Owner)
	own = slices.DeleteFunc(own, func(t templates.Template) bool {
		id, name := query.Get("sandboxID"), query.Get("name")
		return id != "" && t.Session != id || name != "" && name != t.Name && name != t.ID
	})
	slices.SortFunc(own, func(a, b templates.Template) int { return strings.Compare(placeOf(b), placeOf(a)) })
	if text := query.Get("nextToken"); text != "" {
		from, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return 0, nil, fail(http.StatusBadRequest, "nextToken is not one that this server gave")
		}
		own = slices.DeleteFunc(own, func(t templates.Template) bool { return placeOf(t) >= string(from) })
	}
	if len(own) > limit {
		own = own[:limit]
		c.w.Header().Set("X-Next-Token", base64.RawURLEncoding.EncodeToString([]byte(placeOf(own[limit-1]))))
	}
	page := make([]snapshotAnswer, len(own))
	for i, t := range own {
		page[i] = snapshotAnswer{t.ID, names(t)}
	}
	return http.StatusOK, page, nil
}

// placeOf returns the key by which snapshots are sorted: their creation, then their ID.
func placeOf(t templates.Template) string {
	return fmt.Sprintf("%016x %s", t.Created.UnixMilli(), t.ID)
}

func (s *Server) deleteSnapshot(c call) (int, any, error) {
	if s.yard != nil {
		if b, ok := s.yard.find(c.r.PathValue("id"), c.key.Owner); ok && !b.done() {
			s.yard.drop(b)
			return http.StatusNoContent, nil, nil
		}
	}
	t, err := s.snapshotOf(c.r.PathValue("id"), c.key.Owner)
	if err != nil {
		return 0, nil, err
	}
	if err := s.opts.Templates.Remove(c.r.Context(), t.ID); tool.KindOf(err) == tool.NotFound {
		return 0, nil, errNoTemplate
	} else if err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, nil
}

func (s *Server) snapshot(c call, sandbox *registry.Sandbox) (int, any, error) {
	var body struct {
		Name string `json:"name"`
	}
	if err := decode(c.r, &body); err != nil {
		return 0, nil, err
	}
	switch {
	case s.opts.Templates == nil:
		return 0, nil, fail(http.StatusNotImplemented, "this server doesn't make snapshots; read the sandbox's files, as with tar, and write them into another one")
	case IsTemplate(body.Name):
		return 0, nil, fail(http.StatusBadRequest, "name is reserved for a template that every key has; use another one")
	case !sandbox.IsRunning():
		return 0, nil, fail(http.StatusConflict, "the sandbox is paused; resume it first")
	}
	if body.Name != "" {
		if err := templates.CheckName(body.Name); err != nil {
			return 0, nil, err
		}
	}
	if err := s.mayStart(c.key); err != nil {
		return 0, nil, err
	}
	quota := s.quota(c.key)
	quota.Snapshots = s.opts.Snapshots
	room, err := s.opts.Registry.Reserve(c.r.Context(), sandbox, quota)
	if err != nil {
		return 0, nil, err
	}
	defer room.Release()
	box, err := sandbox.Box(c.r.Context())
	if err != nil {
		return 0, nil, err
	}
	t, err := s.opts.Templates.Create(c.r.Context(), box, body.Name, c.key.Owner)
	if err != nil {
		return 0, nil, err
	}
	ctx := context.WithoutCancel(c.r.Context())
	if err := room.Fits(ctx, t.Disk); err != nil {
		return 0, nil, errors.Join(err, s.opts.Templates.Remove(ctx, t.ID))
	}
	return http.StatusCreated, snapshotAnswer{t.ID, names(t)}, nil
}

// noBuilds answers the SDK's builds of templates.
func (s *Server) noBuilds(call) (int, any, error) {
	return 0, nil, fail(http.StatusNotFound, "this server doesn't build templates; make a snapshot of a sandbox, or ask the server's operator for an image with what you need")
}

// publish answers requests to share a template with other keys.
func (s *Server) publish(call) (int, any, error) {
	return 0, nil, fail(http.StatusNotFound, "a template belongs to its key alone; build it with the other key as well")
}

func (s *Server) logs(call, *registry.Sandbox) (int, any, error) {
	return http.StatusOK, map[string][]struct{}{"logs": {}, "logEntries": {}}, nil
}
