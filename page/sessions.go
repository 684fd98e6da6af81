package page

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// listed is a session in the list.
type listed struct {
	ID      string          `json:"id"`
	Kept    bool            `json:"kept"`
	State   string          `json:"state"` // as in wisbox ls
	Created time.Time       `json:"created_at"`
	Used    time.Time       `json:"used_at"`
	Held    bool            `json:"held"` // its programs may run
	Problem string          `json:"problem,omitempty"`
	Image   string          `json:"image,omitempty"`
	Limits  *sandbox.Limits `json:"limits,omitempty"`
	Steps   bool            `json:"steps"` // its calls can be undone
	Last    json.RawMessage `json:"last,omitempty"`
}

func (s *Server) list(r *http.Request) (any, error) {
	all, err := s.opts.Manager.List(r.Context())
	if err != nil {
		return nil, err
	}
	out := []listed{}
	for _, e := range all {
		out = append(out, s.listedOf(e))
	}
	slices.SortStableFunc(out, func(a, b listed) int { return cmp.Or(b.Used.Compare(a.Used), cmp.Compare(a.ID, b.ID)) })
	return map[string]any{"sessions": out}, nil
}

func (s *Server) listedOf(e overlay.Entry) listed {
	l := listed{
		ID: e.ID, Kept: e.State.Kept, State: e.Shown(), Held: e.Held || e.InUse, Problem: e.Problem,
		Created: e.State.Created.At, Used: e.State.LastUsed.At,
	}
	var settings wisbox.SessionOptions
	if json.Unmarshal(e.State.Settings, &settings) == nil {
		limits := settings.Limits.WithDefaults()
		l.Image, l.Limits, l.Steps = settings.Image, &limits, settings.AutoSnapshot || settings.RollbackOnFailure
	}
	_ = s.opts.Store.LastLog(e.ID, 1, func(line []byte) error {
		l.Last = slices.Clone(line)
		return nil
	})
	return l
}

// asked is the page's request for a new session. Sizes are in bytes, times in seconds.
type asked struct {
	Name     string            `json:"name"`
	Image    string            `json:"image"`
	Template string            `json:"template"`
	Mounts   []hostmount.Mount `json:"mounts"`
	Limits   sandbox.Limits    `json:"limits"`
	Allow    []string          `json:"allow"`
	Deny     []string          `json:"deny"`
	Steps    bool              `json:"steps"`
	TTL      int64             `json:"ttl"`
	Idle     int64             `json:"idle"`
}

func (s *Server) create(r *http.Request) (any, error) {
	var a asked
	if err := read(r, &a); err != nil {
		return nil, err
	}
	if len(a.Mounts) > 0 && len(s.opts.AllowedRoots) == 0 {
		return nil, tool.Errorf(tool.Permission, "no folder may be copied in; wisbox ui --allow-root DIR allows some").In("mounts")
	}
	o := s.opts.Session
	o.Kept, o.Name, o.AutoSnapshot, o.Mounts, o.AllowedRoots = true, a.Name, a.Steps, a.Mounts, s.opts.AllowedRoots
	o.Image, o.Template = cmp.Or(a.Image, o.Image), a.Template
	if a.Template != "" {
		o.Image = a.Image // otherwise the image with which the template's files were made
	}
	o.Limits = over(o.Limits, a.Limits)
	o.Allow, o.Deny = a.Allow, slices.Concat(o.Deny, a.Deny)
	o.TTL = cmp.Or(time.Duration(a.TTL)*time.Second, o.TTL)
	o.Idle = cmp.Or(time.Duration(a.Idle)*time.Second, o.Idle)
	made, err := s.opts.Manager.Open(r.Context(), &o)
	if err != nil {
		return nil, err
	}
	return named(made, r)
}

// over returns limits, with those of others in zero fields.
func over(others, limits sandbox.Limits) sandbox.Limits {
	return sandbox.Limits{
		CPUs: cmp.Or(limits.CPUs, others.CPUs), Memory: cmp.Or(limits.Memory, others.Memory), PIDs: cmp.Or(limits.PIDs, others.PIDs),
		Tmp: cmp.Or(limits.Tmp, others.Tmp), Shm: cmp.Or(limits.Shm, others.Shm), Disk: cmp.Or(limits.Disk, others.Disk), Inodes: cmp.Or(limits.Inodes, others.Inodes),
		NoFile: cmp.Or(limits.NoFile, others.NoFile), FileSize: cmp.Or(limits.FileSize, others.FileSize),
	}
}

// named detaches from a new session, and returns its name.
func named(s *wisbox.Session, r *http.Request) (any, error) {
	return map[string]string{"id": s.ID()}, s.Close(context.WithoutCancel(r.Context()))
}

func (s *Server) remove(r *http.Request) (any, error) {
	return struct{}{}, s.opts.Manager.Remove(r.Context(), r.PathValue("id"))
}

func (s *Server) stop(r *http.Request) (any, error) {
	return struct{}{}, s.opts.Manager.Stop(r.Context(), r.PathValue("id"))
}

// rename stops the session if nothing else prevents the rename, because a running sandbox has the old name.
func (s *Server) rename(r *http.Request) (any, error) {
	var to struct {
		Name string `json:"name"`
	}
	if err := read(r, &to); err != nil {
		return nil, err
	}
	if s.opts.KeepNames {
		return nil, tool.Errorf(tool.Unsupported, "sessions of this server can't be renamed: its clients know them by their names; fork it under another name")
	}
	id := r.PathValue("id")
	err := s.opts.Manager.Rename(r.Context(), id, to.Name)
	if known := tool.AsError(err); known != nil && known.Kind == tool.Busy {
		if err = s.opts.Manager.Stop(r.Context(), id); err == nil {
			err = s.opts.Manager.Rename(r.Context(), id, to.Name)
		}
	}
	return map[string]string{"id": to.Name}, err
}

func fork(s *wisbox.Session, r *http.Request) (any, error) {
	var to struct {
		Name string `json:"name"`
	}
	if err := read(r, &to); err != nil {
		return nil, err
	}
	made, err := s.Clone(r.Context(), &wisbox.CloneOptions{Name: to.Name, Kept: true})
	if err != nil {
		return nil, err
	}
	return named(made, r)
}

func pause(s *wisbox.Session, r *http.Request) (any, error) { return struct{}{}, s.Pause(r.Context()) }

func resume(s *wisbox.Session, r *http.Request) (any, error) { return s.Resume(r.Context()) }

func inspect(s *wisbox.Session, r *http.Request) (any, error) { return s.Inspect(r.Context()) }

func usage(s *wisbox.Session, r *http.Request) (any, error) { return s.Usage(r.Context()) }

func processes(s *wisbox.Session, r *http.Request) (any, error) {
	all, err := s.Processes(r.Context())
	return map[string]any{"processes": append([]wisbox.ProcessInfo{}, all...)}, err
}

func kill(s *wisbox.Session, r *http.Request) (any, error) {
	return s.SignalProcess(r.Context(), r.PathValue("p"), "KILL")
}

const maxProblems = 100 // of a log that the page lists

// verify checks both logs for changes.
func (s *Server) verify(r *http.Request) (any, error) {
	calls, err := s.opts.Store.VerifyLog(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	connections, err := s.opts.Store.VerifyEgressLog(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	for _, log := range []*overlay.LogReport{calls, connections} {
		log.Problems = log.Problems[:min(len(log.Problems), maxProblems)]
	}
	return map[string]*overlay.LogReport{"calls": calls, "connections": connections}, nil
}

func network(s *wisbox.Session, r *http.Request) (any, error) { return s.Egress(r.Context()) }

// rules adds rules to a session.
func rules(s *wisbox.Session, r *http.Request) (any, error) {
	var more struct {
		Allow []string `json:"allow"`
		Deny  []string `json:"deny"`
	}
	if err := read(r, &more); err != nil {
		return nil, err
	}
	var errs []error
	if len(more.Allow) > 0 {
		_, err := s.Allow(r.Context(), more.Allow...)
		errs = append(errs, err)
	}
	if len(more.Deny) > 0 {
		_, err := s.Deny(r.Context(), more.Deny...)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s.Egress(r.Context())
}
