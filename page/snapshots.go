package page

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
)

// maxPatch is the maximum number of bytes of a patch that the page shows. The download has all of it.
const maxPatch = 2 << 20

// kept is a snapshot in the form of snapshot_list.
type kept struct {
	ID   string `json:"snapshot_id"`
	Call string `json:"call,omitempty"`
}

// call calls a tool, and returns its answer as JSON.
func call(s *wisbox.Session, r *http.Request, name string, args any) (json.RawMessage, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	res, err := s.CallOwn(r.Context(), name, raw)
	if err != nil {
		return nil, err
	}
	return json.Marshal(res.Value)
}

func snapshots(s *wisbox.Session, r *http.Request) (any, error) {
	return call(s, r, "snapshot_list", map[string]bool{"steps": true})
}

func keep(s *wisbox.Session, r *http.Request) (any, error) {
	var a struct {
		Label string `json:"label,omitempty"`
	}
	if err := read(r, &a); err != nil {
		return nil, err
	}
	return call(s, r, "snapshot_create", a)
}

func forget(s *wisbox.Session, r *http.Request) (any, error) {
	return struct{}{}, s.RemoveSnapshots(r.Context(), r.PathValue("s"))
}

func restore(s *wisbox.Session, r *http.Request) (any, error) {
	var a struct {
		ID string `json:"snapshot_id"`
	}
	if err := read(r, &a); err != nil {
		return nil, err
	}
	return call(s, r, "snapshot_restore", a)
}

// steps returns the last calls that can be undone, the latest first.
func steps(s *wisbox.Session, r *http.Request) (any, error) {
	all, err := s.Steps(r.Context(), 0)
	return map[string]any{"steps": all}, err
}

func undo(s *wisbox.Session, r *http.Request) (any, error) {
	var a struct {
		Call string `json:"call"`
	}
	if err := read(r, &a); err != nil {
		return nil, err
	}
	return s.Undo(r.Context(), a.Call)
}

// compared holds the differences, and the beginning of the patch.
type compared struct {
	*wisbox.Diff
	Patch string `json:"patch"`
	Cut   bool   `json:"cut"`
}

func diff(s *wisbox.Session, r *http.Request) (any, error) {
	return compare(s, r, optionsOf(r))
}

func optionsOf(r *http.Request) *wisbox.DiffOptions {
	q := r.URL.Query()
	return &wisbox.DiffOptions{From: q.Get("from"), To: q.Get("to"), All: q.Get("all") != "", Lines: true}
}

func compare(s *wisbox.Session, r *http.Request, opts *wisbox.DiffOptions) (any, error) {
	out := &cut{left: maxPatch}
	d, err := s.Patch(r.Context(), out, opts)
	if err != nil && d == nil {
		return nil, err
	}
	return compared{d, strings.ToValidUTF8(out.String(), string(utf8.RuneError)), out.over}, nil
}

// cut keeps the beginning of the written data.
type cut struct {
	bytes.Buffer
	left int
	over bool
}

// Write implements io.Writer.
func (c *cut) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.left -= n
	c.over = c.over || n < len(p)
	c.Buffer.Write(p[:n])
	return len(p), nil
}

// step returns the changes by the call in the path, from its step to the next one.
func step(s *wisbox.Session, r *http.Request) (any, error) {
	raw, err := call(s, r, "snapshot_list", map[string]bool{"steps": true})
	var all struct {
		Snapshots []kept `json:"snapshots"`
	}
	if err = errors.Join(err, json.Unmarshal(raw, &all)); err != nil {
		return nil, err
	}
	steps := slices.DeleteFunc(all.Snapshots, func(k kept) bool { return k.Call == "" })
	i := slices.IndexFunc(steps, func(k kept) bool { return k.Call == r.PathValue("call") })
	if i < 0 {
		return nil, tool.Errorf(tool.NotFound, "this call has no step: it changed nothing, was undone, or is too old").In("call")
	}
	opts := &wisbox.DiffOptions{From: steps[i].ID, All: r.URL.Query().Get("all") != "", Lines: true}
	if i+1 < len(steps) {
		opts.To = steps[i+1].ID
	}
	return compare(s, r, opts)
}
