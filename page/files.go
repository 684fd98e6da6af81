package page

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

const (
	pageOfDir = 1000     // entries of one answer
	maxShown  = 2 << 20  // bytes of a text that the page shows
	maxHex    = 16 << 10 // bytes of a file that is not text
)

// entry is a file, directory or link of a directory.
type entry struct {
	Name   string    `json:"name"`
	Kind   string    `json:"kind"` // file, dir, link, other
	Size   int64     `json:"size"`
	Time   time.Time `json:"modified_at"`
	Target string    `json:"target,omitempty"`
	Odd    bool      `json:"odd,omitempty"` // its name is not UTF-8, so requests can't name it
}

// pathOf returns the path that a request names, relative to the workspace.
func pathOf(r *http.Request) (string, error) {
	p := r.URL.Query().Get("path")
	if p == "" {
		p = "."
	}
	if !fs.ValidPath(p) {
		return "", tool.Errorf(tool.Invalid, "path is %q; it must be a path within the workspace", p).In("path")
	}
	return p, nil
}

func files(s *wisbox.Session, r *http.Request) (any, error) {
	p, err := pathOf(r)
	if err != nil {
		return nil, err
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("from"))
	all, err := fs.ReadDir(s.Files(), p)
	if err != nil {
		return nil, fileError(err)
	}
	from = min(max(from, 0), len(all))
	out := []entry{}
	for _, e := range all[from:min(from+pageOfDir, len(all))] {
		out = append(out, entryOf(s.Files(), p, e))
	}
	return map[string]any{"path": p, "entries": out, "from": from, "total": len(all)}, nil
}

func entryOf(tree fs.FS, dir string, e fs.DirEntry) entry {
	out := entry{Name: e.Name(), Kind: "other", Odd: !utf8.ValidString(e.Name())}
	if info, err := e.Info(); err == nil {
		out.Size, out.Time = info.Size(), info.ModTime()
	}
	switch mode := e.Type(); {
	case mode.IsRegular():
		out.Kind = "file"
	case mode.IsDir():
		out.Kind = "dir"
	case mode&fs.ModeSymlink != 0:
		out.Kind = "link"
		out.Target, _ = fs.ReadLink(tree, path.Join(dir, e.Name()))
	}
	return out
}

func fileError(err error) error {
	if known := (*tool.Error)(nil); errors.As(err, &known) {
		return known
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return tool.Errorf(tool.NotFound, "the file is gone; list its directory again").Because(err)
	case errors.Is(err, fs.ErrPermission):
		return tool.Errorf(tool.Permission, "the file can't be read").Because(err)
	}
	return tool.Errorf(tool.NotRegular, "this is not a file or directory that can be read here").Because(err)
}

// openFile opens a regular file.
func openFile(s *wisbox.Session, r *http.Request) (fs.File, fs.FileInfo, error) {
	p, err := pathOf(r)
	if err != nil {
		return nil, nil, err
	}
	f, err := s.Files().Open(p)
	if err != nil {
		return nil, nil, fileError(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = tool.Errorf(tool.NotRegular, "%q is not a regular file", p).In("path")
	}
	if err != nil {
		return nil, nil, errors.Join(fileError(err), f.Close())
	}
	return f, info, nil
}

// shown is a file as the page displays it.
type shown struct {
	Size int64  `json:"size"`
	Kind string `json:"kind"`           // text, image, bytes
	Type string `json:"type,omitempty"` // media type of an image
	Text string `json:"text,omitempty"`
	Hex  string `json:"hex,omitempty"` // the first bytes
	Cut  bool   `json:"cut"`
	Sum  string `json:"sha256,omitempty"` // of a complete text
}

func file(s *wisbox.Session, r *http.Request) (any, error) {
	f, info, err := openFile(s, r)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, maxShown+1))
	if err != nil {
		return nil, fileError(err)
	}
	return show(head, info.Size(), r.URL.Query().Get("as") == "hex"), nil
}

func show(head []byte, size int64, asBytes bool) shown {
	out := shown{Size: size, Cut: len(head) > maxShown}
	head = head[:min(len(head), maxShown)]
	text := head
	for cut := 0; out.Cut && cut < utf8.UTFMax && !utf8.Valid(text); cut++ {
		text = text[:len(text)-1]
	}
	switch kind := http.DetectContentType(head); {
	case asBytes:
		out.Kind = "bytes"
	case kind == "image/png", kind == "image/jpeg", kind == "image/gif", kind == "image/webp":
		out.Kind, out.Type = "image", kind
	case utf8.Valid(text) && !strings.ContainsRune(string(text), 0):
		out.Kind, out.Text, out.Sum = "text", string(text), sumOf(head)
		return out
	default:
		out.Kind = "bytes"
	}
	out.Cut = size > maxHex
	out.Hex = hex.EncodeToString(head[:min(len(head), maxHex)])
	return out
}

func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// save writes a text, unless the file has changed since the page showed it.
func save(s *wisbox.Session, r *http.Request) (any, error) {
	var a struct {
		Text string `json:"text"`
		Was  string `json:"was"` // sha256; "" for a new file
	}
	if err := read(r, &a); err != nil {
		return nil, err
	}
	p, err := pathOf(r)
	if err != nil {
		return nil, err
	}
	mode := "overwrite"
	if a.Was == "" {
		mode = "create"
	} else if err := unchanged(s, r, a.Was); err != nil {
		return nil, err
	}
	if _, err := call(s, r, "write_file", map[string]any{"file_path": p, "content": a.Text, "mode": mode}); err != nil {
		return nil, err
	}
	return file(s, r)
}

func unchanged(s *wisbox.Session, r *http.Request, was string) error {
	f, _, err := openFile(s, r)
	if err != nil {
		return err
	}
	defer f.Close()
	now, err := io.ReadAll(io.LimitReader(f, maxShown+1))
	if err == nil && sumOf(now) != was {
		err = tool.Errorf(tool.Conflict, "the file was changed since it was shown here; copy your text, and load it again").In("path")
	}
	return err
}

// raw serves a file as a download.
func (s *Server) raw(w http.ResponseWriter, r *http.Request) {
	err := s.with(r, func(session *wisbox.Session) error {
		f, info, err := openFile(session, r)
		if err != nil {
			return err
		}
		defer f.Close()
		out := &late{w: w, name: path.Base(info.Name()), kind: "application/octet-stream"}
		if _, err = io.Copy(out, f); err == nil {
			_, err = out.Write(nil) // for an empty file
		}
		return err
	})
	s.ended(w, r, err)
}

// archive serves a directory as a tar download.
func (s *Server) archive(w http.ResponseWriter, r *http.Request) {
	err := s.with(r, func(session *wisbox.Session) error {
		p, err := pathOf(r)
		if err != nil {
			return err
		}
		name := path.Base(p)
		if p == "." {
			name = session.ID()
		}
		out := &late{w: w, name: name + ".tar", kind: "application/x-tar"}
		_, err = session.ExportWith(r.Context(), p, out, &vfs.ExportOptions{Sparse: true, LeaveOut: true})
		return err
	})
	s.ended(w, r, err)
}

// patch serves the differences as a patch for git apply.
func (s *Server) patch(w http.ResponseWriter, r *http.Request) {
	err := s.with(r, func(session *wisbox.Session) error {
		out := &late{w: w, name: session.ID() + ".patch", kind: "application/octet-stream"}
		_, err := session.Patch(r.Context(), out, optionsOf(r))
		if err == nil {
			_, err = out.Write(nil)
		}
		return err
	})
	s.ended(w, r, err)
}

// late begins a download with its first bytes: before them an error can still be reported.
type late struct {
	w          http.ResponseWriter
	name, kind string
	begun      bool
}

// Write implements io.Writer.
func (l *late) Write(p []byte) (int, error) {
	if !l.begun {
		l.begun = true
		download(l.w, l.name, l.kind)
	}
	n, err := l.w.Write(p)
	return n, cutShort(err)
}

// download sets the headers of an answer that browsers save as a file, and never show.
func download(w http.ResponseWriter, name, kind string) {
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": plain(name)})
	if disposition == "" {
		disposition = "attachment"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Disposition", disposition)
}

// plain replaces the characters of a name that have a meaning for headers, terminals or file managers.
func plain(name string) string {
	return strings.Map(func(c rune) rune {
		if c == utf8.RuneError || c == '"' || c == '\\' || c == '/' || !strconv.IsPrint(c) {
			return '_'
		}
		return c
	}, name)
}

var errCutShort = errors.New("the download broke off")

func cutShort(err error) error {
	if err != nil {
		return errors.Join(errCutShort, err)
	}
	return nil
}

// ended answers with the error of a download that hasn't begun. It aborts one that has, so that nobody takes it for
// complete.
func (s *Server) ended(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case err == nil:
	case w.Header().Get("Content-Disposition") != "":
		panic(http.ErrAbortHandler)
	default:
		s.fail(w, r, err)
	}
}
