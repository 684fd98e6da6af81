package envd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Bounds of ListDir.
const (
	maxListed     = 100_000  // entries
	maxListedSize = 16 << 20 // bytes of them
	maxLists      = 2        // at once of a sandbox
)

// attrPrefix begins the extended attributes that hold a file's metadata.
const attrPrefix = "user.e2b."

func itoa(n int) string { return strconv.Itoa(n) }

type pathAsk struct {
	Path string `json:"path"`
}

// entry describes a file.
type entry struct {
	Name          string            `json:"name"`
	Type          string            `json:"type,omitempty"`
	Path          string            `json:"path"`
	Size          int64             `json:"size,string"`
	Mode          uint32            `json:"mode"`
	Permissions   string            `json:"permissions"`
	Owner         string            `json:"owner"`
	Group         string            `json:"group"`
	ModifiedTime  time.Time         `json:"modifiedTime"`
	SymlinkTarget string            `json:"symlinkTarget,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
}

// entryOf describes the file at a path.
func entryOf(at string, f sandbox.FileInfo) *entry {
	target := f.Mode
	if f.Mode&fs.ModeSymlink != 0 {
		target = f.RealMode
	}
	e := &entry{
		Name: path.Base(at), Path: at, Size: f.Size, Mode: uint32(target.Perm()), Permissions: f.Mode.String(),
		Owner: nameOf(f.UID), Group: nameOf(f.GID), ModifiedTime: f.Modified.UTC(), SymlinkTarget: f.Real, Metadata: metadataOf(f.Attrs),
	}
	dangling := f.Mode&fs.ModeSymlink != 0 && f.Real == ""
	switch {
	case target.IsDir():
		e.Type = "FILE_TYPE_DIRECTORY"
	case target.IsRegular() && !dangling:
		e.Type = "FILE_TYPE_FILE"
	}
	return e
}

// nameOf returns a user or group.
func nameOf(id int) string {
	switch id {
	case 0:
		return "root"
	case sandbox.UserID:
		return userName
	case 65534:
		return "nobody"
	}
	return itoa(id)
}

func metadataOf(attrs map[string]string) map[string]string {
	var out map[string]string
	for name, value := range attrs {
		key, ok := strings.CutPrefix(name, attrPrefix)
		if !ok {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out
}

type entryAnswer struct {
	Entry *entry `json:"entry"`
}

func (h *handler) entryAt(ctx context.Context, at string) (entryAnswer, error) {
	f, err := h.opts.Session.Inside().Stat(ctx, at, sandbox.StatOptions{Attrs: true})
	if err != nil {
		return entryAnswer{}, err
	}
	return entryAnswer{entryOf(at, f)}, nil
}

func (h *handler) stat(ctx context.Context, ask *pathAsk) (entryAnswer, error) {
	at, err := resolve(ask.Path)
	if err != nil {
		return entryAnswer{}, err
	}
	answer, err := h.entryAt(ctx, at)
	if tool.KindOf(err) == tool.NotDir { // a file has nothing below it
		err = tool.Errorf(tool.NotFound, "%s", tool.AsError(err).Message)
	}
	return answer, err
}

type listDirAsk struct {
	Path  string `json:"path"`
	Depth uint32 `json:"depth"`
}

type listDirAnswer struct {
	Entries []json.RawMessage `json:"entries"` // each an [entry]
}

func (h *handler) listDir(ctx context.Context, ask *listDirAsk) (listDirAnswer, error) {
	answer := listDirAnswer{Entries: []json.RawMessage{}}
	at, err := resolve(ask.Path)
	if err != nil {
		return answer, err
	}
	opts := sandbox.ListOptions{Depth: int(min(max(ask.Depth, 1), 4096)), Limit: maxListed, Attrs: true}
	size, full := 0, error(nil)
	err = h.opts.Session.Inside().List(ctx, at, opts, func(f sandbox.FileInfo) error {
		raw, err := json.Marshal(entryOf(path.Join(at, f.Path), f))
		if err != nil {
			return err
		}
		if full = httpguard.Take(ctx, int64(len(raw))); full != nil {
			return full
		}
		if size += len(raw); size > maxListedSize {
			full = &wireError{"resource_exhausted", fmt.Sprintf("the list has more than %d bytes; list with a lower depth, or the subdirectories one by one", maxListedSize)}
			return full
		}
		answer.Entries = append(answer.Entries, raw)
		return nil
	})
	return answer, cmp.Or(full, err)
}

// inTurn serves at most most requests at once; the others wait.
func inTurn(most int, next http.HandlerFunc) http.HandlerFunc {
	turns := make(chan struct{}, most)
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
			next(w, r)
		case <-r.Context().Done():
		}
	}
}

func (h *handler) makeDir(ctx context.Context, ask *pathAsk) (entryAnswer, error) {
	at, err := resolve(ask.Path)
	if err == nil {
		err = h.opts.Session.Inside().Mkdir(ctx, at, sandbox.MkdirOptions{Parents: true})
	}
	if err != nil {
		return entryAnswer{}, err
	}
	return h.entryAt(ctx, at)
}

type moveAsk struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
}

func (h *handler) move(ctx context.Context, ask *moveAsk) (entryAnswer, error) {
	from, err := resolve(ask.Source)
	if err != nil {
		return entryAnswer{}, err
	}
	to, err := resolve(ask.Destination)
	if err == nil {
		err = h.opts.Session.Inside().Move(ctx, from, to, sandbox.MoveOptions{Parents: true})
	}
	if err != nil {
		return entryAnswer{}, err
	}
	return h.entryAt(ctx, to)
}

func (h *handler) remove(ctx context.Context, ask *pathAsk) (none struct{}, err error) {
	at, err := resolve(ask.Path)
	if err == nil {
		err = h.opts.Session.Inside().Remove(ctx, at, sandbox.RemoveOptions{Recursive: true})
	}
	if tool.KindOf(err) == tool.NotFound {
		err = nil
	}
	return none, err
}

type watchAsk struct {
	Path         string `json:"path"`
	Recursive    bool   `json:"recursive"`
	IncludeEntry bool   `json:"includeEntry"`
}

type watchEvent struct {
	Start      *struct{} `json:"start,omitempty"`
	Filesystem *change   `json:"filesystem,omitempty"`
	Keepalive  *struct{} `json:"keepalive,omitempty"`
}

type change struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Entry *entry `json:"entry,omitempty"`
}

var watchKeepalive = watchEvent{Keepalive: &struct{}{}}

var changeTypes = map[sandbox.FileChange]string{
	sandbox.FileCreated: "EVENT_TYPE_CREATE", sandbox.FileWritten: "EVENT_TYPE_WRITE", sandbox.FileRemoved: "EVENT_TYPE_REMOVE",
	sandbox.FileRenamed: "EVENT_TYPE_RENAME", sandbox.FileModeChanged: "EVENT_TYPE_CHMOD",
}

func (h *handler) watchDir(ctx context.Context, _ *http.Request, ask *watchAsk, o *out) error {
	at, err := resolve(ask.Path)
	if err != nil {
		return err
	}
	w, err := h.opts.Session.Inside().Watch(ctx, at, sandbox.WatchOptions{Recursive: ask.Recursive})
	if err != nil {
		return err
	}
	defer w.Close()
	err = o.send(watchEvent{Start: &struct{}{}})
	for err == nil {
		var e sandbox.FileEvent
		if e, err = w.Next(); err == nil {
			err = h.sendChange(ctx, at, e, ask.IncludeEntry, o)
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.EOF): // the directory is gone
		return nil
	}
	return err
}

func (h *handler) sendChange(ctx context.Context, dir string, e sandbox.FileEvent, withEntry bool, o *out) error {
	if e.Change == sandbox.FilesLost {
		return &wireError{"resource_exhausted", "there were more changes than could be passed on; list the directory and watch it again"}
	}
	c := &change{Name: e.Name, Type: changeTypes[e.Change]}
	if c.Name == "" {
		c.Name = "."
	}
	if withEntry {
		if found, err := h.entryAt(ctx, path.Join(dir, e.Name)); err == nil {
			c.Entry = found.Entry
		}
	}
	return o.send(watchEvent{Filesystem: c})
}
