package vfs

import (
	"context"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
)

// Kind is the type of the entry that a path names.
type Kind string

// The kinds of entries.
const (
	File      Kind = "file"
	Directory Kind = "directory"
	Symlink   Kind = "symlink"
	Other     Kind = "other" // FIFO, socket, device
)

// Info describes one path.
type Info struct {
	Path      string // as requested
	Kind      Kind
	SizeBytes int64       // of a file
	Mode      fs.FileMode // type and permissions, without set-id bits
	Version   int64       // of a file: 1, then growing
	CreatedAt time.Time   // of a file: when it was first seen
	UpdatedAt time.Time
}

// Stat describes a path. It follows links that stay inside.
func (f *FS) Stat(ctx context.Context, path string) (Info, error) {
	at, err := f.reach(ctx, path, "path", f.opts.Paths.clean, f.tree.Look)
	if err != nil {
		return Info{}, err
	}
	defer at.close()
	return f.info(at), nil
}

func (f *FS) info(at *reached) Info {
	info := Info{Path: f.opts.Paths.Display(at.rel), Kind: kindOf(&at.Stat), Mode: beneath.Mode(&at.Stat), UpdatedAt: modified(&at.Stat)}
	if info.Kind == File {
		r := f.versions.look(at.Path, &at.Stat)
		info.SizeBytes, info.Version, info.CreatedAt = at.Stat.Size, r.version, r.createdAt()
	}
	return info
}

func kindOf(st *unix.Stat_t) Kind { return kindOfType(uint8(st.Mode & unix.S_IFMT >> 12)) }

// kindOfType returns the Kind of a directory entry's type (unix.DT_*).
func kindOfType(t uint8) Kind {
	switch t {
	case unix.DT_REG:
		return File
	case unix.DT_DIR:
		return Directory
	case unix.DT_LNK:
		return Symlink
	}
	return Other
}

func modified(st *unix.Stat_t) time.Time { return time.Unix(st.Mtim.Unix()).UTC() }

// timestamp formats a time by RFC 3339 with milliseconds. Programs can set any time: years that
// the format doesn't have become its bounds.
func timestamp(t time.Time) string {
	switch {
	case t.Year() > 9999:
		t = time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC)
	case t.Year() < 0:
		t = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
