package snapshot

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/tool"
)

// storeError is what an agent is told of a store that doesn't work.
func storeError(err error) error {
	if err == nil {
		return nil
	}
	if e := (*tool.Error)(nil); errors.As(err, &e) {
		return e
	}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return tool.Errorf(tool.NoSpace, "the host has no room for the snapshot; remove old snapshots, then retry").Because(err)
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES):
		return tool.Errorf(tool.Unavailable, "the session's snapshots can't be written on the host").Because(err)
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return tool.Errorf(tool.Busy, "too many files are open on the host; retry").Because(err)
	}
	if d := (*damage)(nil); errors.As(err, &d) {
		return d.report("the snapshot")
	}
	return tool.AsError(err)
}

// report names what is damaged.
func (d *damage) report(what string) *tool.Error {
	place := "its record of a directory"
	if d.path != "" {
		place = d.path
	}
	return tool.Errorf(tool.Unavailable, "%s can't be used: the stored content of %s is damaged; nothing was changed; other snapshots are not touched", what, place).Because(d)
}

// at names the path that damage lies at, unless it is known.
func at(err error, path string) error {
	if d := (*damage)(nil); errors.As(err, &d) && d.path == "" {
		d.path = path
	}
	return err
}

// shown is a path as an agent may see it: one line, whatever a program has
// named its files.
func shown(path string) string {
	if path == "" {
		return "/"
	}
	if printable(path) {
		return path
	}
	var b strings.Builder
	for i := 0; i < len(path); {
		r, size := utf8.DecodeRuneInString(path[i:])
		if r >= ' ' && r <= '~' {
			b.WriteByte(path[i])
		} else {
			quoted := strconv.QuoteToASCII(path[i : i+size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
	return b.String()
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
