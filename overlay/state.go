package overlay

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool/answer"
)

const (
	stateFile    = "session.json"
	stateSchema  = 1
	maxStateFile = 4 << 20
)

// SessionState is a session's stage of life.
type SessionState string

const (
	StateOpening SessionState = "opening" // being created; without a live client it was never complete
	StateReady   SessionState = "ready"   // usable
	StatePaused  SessionState = "paused"  // usable, but its programs are frozen and none can start
	StateClosing SessionState = "closing" // being removed; without a live client the removal was interrupted
	StateLost    SessionState = "lost"    // its session.json is unreadable; it can only be removed
)

// State is the content of session.json.
type State struct {
	Schema int    `json:"schema"`
	ID     string `json:"id"`
	// Renamed is the session's new name while [Store.Rename] runs.
	Renamed string       `json:"renamed,omitempty"`
	Kept    bool         `json:"kept"`
	Status  SessionState `json:"state"`
	// Created and LastUsed are points in time; [Dir.Touch] and [Dir.Close] update LastUsed.
	Created  Stamp `json:"created"`
	LastUsed Stamp `json:"last_used"`
	// TTL and Idle end a kept session that nobody has open, counted from its creation and from its last use; 0 means
	// never.
	TTL  time.Duration `json:"ttl_ns,omitempty"`
	Idle time.Duration `json:"idle_ns,omitempty"`
	// Owner is the process that created the session.
	Owner Process `json:"owner"`
	// User owns workspace/ and new files in it; nil means the caller's own user.
	User *sandbox.Owner `json:"user,omitempty"`
	// Workspace identifies the directory workspace/; Next identifies the one that may already be there while
	// [Dir.Reset] exchanges the two.
	Workspace Pin  `json:"workspace"`
	Next      *Pin `json:"next_workspace,omitempty"`
	// Pause describes the pause; nil if Status isn't paused.
	Pause *Pause `json:"pause,omitempty"`
	// Stood is the total time of earlier pauses.
	Stood time.Duration `json:"stood_ns,omitempty"`
	// Disk is the session's share of the disk; nil means no limit.
	Disk *Disk `json:"disk,omitempty"`
	// Settings is JSON that the caller keeps with the session.
	Settings json.RawMessage `json:"settings,omitempty"`
	// Former has the values before a [Dir.ResizeDisk] that isn't complete.
	Former *Former `json:"former,omitempty"`
}

// Former has the values of a record that [Dir.ResizeDisk] changes, for the case that the change fails.
type Former struct {
	Disk     *Disk           `json:"disk"`
	Settings json.RawMessage `json:"settings,omitempty"`
}

// Pause describes the pause of a session.
type Pause struct {
	Since Stamp `json:"since"`
	// Container reports whether the session had a container to pause.
	Container bool `json:"container"`
}

// Pin identifies a directory by its device and inode, not by its path. The device number may change with a reboot, so
// it counts only in the boot in which it was read.
type Pin struct {
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
	BootID string `json:"boot_id"`
}

func (p Pin) matches(q Pin) bool {
	return p.Ino == q.Ino && (p.Dev == q.Dev || p.BootID != q.BootID)
}

func (s State) pins(q Pin) bool {
	return s.Workspace.matches(q) || s.Next != nil && s.Next.matches(q)
}

// Expired reports whether the session's time is over at now, and the reason. TTL and idle time apply only to kept
// sessions. A paused session isn't idle.
func (s State) Expired(now Stamp) (reason string, expired bool) {
	switch {
	case s.TTL > 0 && s.Created.passed(now) >= s.TTL:
		return "its time to live of " + s.TTL.String() + " is over", true
	case s.Idle > 0 && s.Status != StatePaused && s.LastUsed.passed(now) >= s.Idle:
		return "unused for " + s.Idle.String(), true
	}
	return "", false
}

// StoodAt returns the total time of all pauses at now.
func (s State) StoodAt(now Stamp) time.Duration {
	if s.Pause == nil {
		return s.Stood
	}
	return s.Stood + s.Pause.Since.passed(now)
}

// Paused changes the record to a paused session's.
func (s *State) Paused(now Stamp, container bool) {
	s.Status, s.Pause = StatePaused, &Pause{Since: now, Container: container}
}

// Resumed undoes Paused.
func (s *State) Resumed(now Stamp) {
	s.Status, s.Stood, s.Pause = StateReady, s.StoodAt(now), nil
}

// Left returns the session's remaining time at now by its TTL; ok is false if it has none. The wall clock counts only
// across a reboot.
func (s State) Left(now Stamp) (left time.Duration, ok bool) {
	return s.TTL - s.Created.passed(now), s.TTL > 0
}

// loadState reads a session.json. A file that is incomplete or has a schema that this
// program doesn't know is an error.
func loadState(dir *os.Root) (State, error) {
	raw, err := readSmall(dir, stateFile)
	if err != nil {
		return State{}, err
	}
	var s State
	if err := json.Unmarshal(raw, &s); err != nil {
		return State{}, err
	}
	if s.Schema > stateSchema {
		return s, answer.Errorf(answer.Unsupported, "the session was made by a newer wisbox; use that one").In("session")
	}
	if s.Schema < 1 || s.ID == "" || s.Status == "" {
		return State{}, errors.New("session.json lacks its schema, id or state")
	}
	switch { // readers may rely on one of the two
	case s.Status != StatePaused:
		s.Pause = nil
	case s.Pause == nil:
		s.Pause = &Pause{Since: Now(), Container: true}
	}
	return s, nil
}

func readSmall(dir *os.Root, name string) ([]byte, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxStateFile))
}

// saveState replaces session.json: readers, also after a crash, see the old state or the new one. The caller holds
// state.lock.
func saveState(dir *os.Root, s State) error {
	raw, err := encodeState(s)
	if err != nil {
		return err
	}
	return replaceState(dir, s.Kept, raw)
}

// replaceState returns when the new record is on disk if durable is set. Otherwise a crash of the host may bring back
// the old one, or none. That is enough for an ephemeral session, which such a crash ends: the next sweep removes it.
func replaceState(dir *os.Root, durable bool, raw []byte) error {
	if durable {
		return replaceFile(dir, stateFile, raw)
	}
	return replaceLater(dir, stateFile, raw)
}

func encodeState(s State) ([]byte, error) {
	raw, err := json.MarshalIndent(s, "", "  ")
	return append(raw, '\n'), err
}

// replaceFile writes name.new, renames it to name, and returns when it is on disk. Only one writer at a time is
// allowed.
func replaceFile(dir *os.Root, name string, content []byte) error {
	if err := replaceLater(dir, name, content); err != nil {
		return err
	}
	return syncDir(dir)
}

// replaceLater is like replaceFile, but doesn't sync the rename: until it is on disk, name is the old file there.
func replaceLater(dir *os.Root, name string, content []byte) error {
	temp := name + ".new"
	err := writeSynced(dir, temp, content)
	if err == nil {
		err = dir.Rename(temp, name)
	}
	if err != nil {
		_ = dir.Remove(temp)
	}
	return err
}

func writeSynced(dir *os.Root, name string, content []byte) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncDir makes the names in dir durable.
func syncDir(dir *os.Root) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, unix.EINVAL) { // the file system doesn't support it
		err = nil
	}
	return errors.Join(err, f.Close())
}
