package snapshot

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/tool"
)

// storeError returns an error of the store as an agent may see it.
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
		return tool.Errorf(tool.Unavailable, "the host refuses access to the session's snapshots; ask the user to check the permissions of wisbox's cache directory").Because(err)
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return tool.Errorf(tool.Busy, "too many files are open on the host; retry").Because(err)
	}
	if d := (*damage)(nil); errors.As(err, &d) {
		return d.report("the snapshot")
	}
	return tool.AsError(err)
}

// report returns an error that names the damaged path.
func (d *damage) report(what string) *tool.Error {
	place := "its record of a directory"
	if d.path != "" {
		place = d.path
	}
	return tool.Errorf(tool.Unavailable, "%s can't be used: the stored content of %s is damaged; nothing was changed, and other snapshots may still work", what, place).Because(d)
}

// at adds the path of a damage to its error, unless it has one.
func at(err error, path string) error {
	if d := (*damage)(nil); errors.As(err, &d) && d.path == "" {
		d.path = path
	}
	return err
}

// shown returns a path as an agent may see it: on one line, whatever its characters.
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
