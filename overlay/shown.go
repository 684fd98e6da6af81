package overlay

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/tool/answer"
	"sync"
)

// The newest displays of evaluations are kept in files named after their calls.
const (
	shownDir      = "shown"
	shownEnd      = ".json"
	maxShownCalls = 64
	maxShownBytes = 16 << 20 // of all of them
)

// callName is the form of a call's ID, which is a file's name here.
var callName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9A-Za-z]{1,64}$`) })

// KeepShown keeps the displays of a call, as JSON, for [Store.Shown]. A session keeps those of at most 64 calls with a
// total of 16 MiB, and drops the oldest. If shown alone is larger, the error is too_large.
func (d *Dir) KeepShown(call string, shown any) error {
	raw, err := json.Marshal(shown)
	if err != nil {
		return err
	}
	if !callName().MatchString(call) || len(raw) > maxShownBytes {
		return answer.Errorf(answer.TooLarge, "the call has shown %d bytes; the maximum is %d", len(raw), maxShownBytes)
	}
	d.shown.Lock()
	defer d.shown.Unlock()
	if err := d.dir.Mkdir(shownDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return ioError(err, "keep the displays of a call")
	}
	dir, err := d.dir.OpenRoot(shownDir)
	if err != nil {
		return ioError(err, "keep the displays of a call")
	}
	defer dir.Close()
	err = makeShownRoom(dir, int64(len(raw)))
	return ioError(errors.Join(err, replaceLater(dir, call+shownEnd, raw)), "keep the displays of a call")
}

// makeShownRoom removes the oldest displays until there is room for another.
func makeShownRoom(dir *os.Root, size int64) error {
	entries, err := fs.ReadDir(dir.FS(), ".") // names of calls begin with their time
	if err != nil {
		return err
	}
	slices.Reverse(entries)
	for i, e := range entries {
		if info, err := e.Info(); err == nil {
			size += info.Size()
		}
		if i+1 < maxShownCalls && size <= maxShownBytes && strings.HasSuffix(e.Name(), shownEnd) {
			continue
		}
		if err := dir.Remove(e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ShownCalls returns the calls of a session for which [Store.Shown] has displays, the oldest first.
func (s *Store) ShownCalls(id string) (calls []string, err error) {
	err = s.withLog(id, func(dir *os.Root) error {
		entries, err := fs.ReadDir(dir.FS(), shownDir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, e := range entries {
			if call, ok := strings.CutSuffix(e.Name(), shownEnd); ok {
				calls = append(calls, call)
			}
		}
		return err
	})
	return calls, err
}

// Shown returns the displays of a call as JSON, see [Dir.KeepShown]. If none are kept the error is not_found.
func (s *Store) Shown(id, call string) (shown json.RawMessage, err error) {
	if !callName().MatchString(call) {
		return nil, nothingShown()
	}
	err = s.withLog(id, func(dir *os.Root) error {
		shown, err = dir.ReadFile(shownDir + "/" + call + shownEnd)
		if errors.Is(err, fs.ErrNotExist) {
			return nothingShown()
		}
		return err
	})
	return shown, err
}

func nothingShown() error {
	return answer.Errorf(answer.NotFound, "the displays of this call are gone; a session keeps those of the last %d", maxShownCalls).In("call")
}
