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
	"github.com/wisbox/wisbox/tool"
)

const (
	stateFile    = "session.json"
	stateSchema  = 1
	maxStateFile = 4 << 20
)

// SessionState is where a session stands in its life.
type SessionState string

const (
	StateOpening SessionState = "opening" // being made; without a live client it was never whole
	StateReady   SessionState = "ready"   // usable
	StatePaused  SessionState = "paused"  // usable, but its programs stand still and none begins
	StateClosing SessionState = "closing" // being removed; without a live client the removal was interrupted
	StateLost    SessionState = "lost"    // its session.json can't be read; it can only be removed
)

// State is the content of session.json.
type State struct {
	Schema int    `json:"schema"`
	ID     string `json:"id"`
	// Renamed is the name that a session gets, while [Store.Rename] is under way.
	Renamed string       `json:"renamed,omitempty"`
	Kept    bool         `json:"kept"`
	Status  SessionState `json:"state"`
	// Created and LastUsed are moments; LastUsed moves with [Dir.Touch] and
	// when a client closes.
	Created  Stamp `json:"created"`
	LastUsed Stamp `json:"last_used"`
	// TTL and Idle end a kept session that nobody has open, counted from its
	// making and from its last use; 0 is never.
	TTL  time.Duration `json:"ttl_ns,omitempty"`
	Idle time.Duration `json:"idle_ns,omitempty"`
	// Owner is the process that made the session.
	Owner Process `json:"owner"`
	// User owns workspace/ and what is made in it; nil is the caller's own user.
	User *sandbox.Owner `json:"user,omitempty"`
	// Workspace is the directory that workspace/ must be; Next is the one that
	// it may be already while [Dir.Reset] exchanges the two.
	Workspace Pin  `json:"workspace"`
	Next      *Pin `json:"next_workspace,omitempty"`
	// Pause is how the session was paused; nil where its Status isn't paused.
	Pause *Pause `json:"pause,omitempty"`
	// Stood is how long its programs have stood still in earlier pauses, all together.
	Stood time.Duration `json:"stood_ns,omitempty"`
	// Disk is the session's share of the disk; nil is no limit.
	Disk *Disk `json:"disk,omitempty"`
	// Settings is whatever the caller keeps with the session.
	Settings json.RawMessage `json:"settings,omitempty"`
}

// Pause of a session.
type Pause struct {
	Since Stamp `json:"since"`
	// Container says that there was one to stand still.
	Container bool `json:"container"`
}

// Pin names a directory by what it is, not by its path. The device number may
// change with a reboot, so it counts only in the boot it was read in.
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

// Expired says whether the session's time is over at now, and why. Only kept
// sessions have a TTL or an idle time that counts. One that is paused isn't idle.
func (s State) Expired(now Stamp) (reason string, expired bool) {
	switch {
	case s.TTL > 0 && s.Created.passed(now) >= s.TTL:
		return "its time to live of " + s.TTL.String() + " is over", true
	case s.Idle > 0 && s.Status != StatePaused && s.LastUsed.passed(now) >= s.Idle:
		return "unused for " + s.Idle.String(), true
	}
	return "", false
}

// StoodAt is how long the session's programs have stood still at now, by all pauses.
func (s State) StoodAt(now Stamp) time.Duration {
	if s.Pause == nil {
		return s.Stood
	}
	return s.Stood + s.Pause.Since.passed(now)
}

// Paused makes the record a paused session's, and Resumed that of one that is ready.
func (s *State) Paused(now Stamp, container bool) {
	s.Status, s.Pause = StatePaused, &Pause{Since: now, Container: container}
}

// Resumed is the inverse of Paused.
func (s *State) Resumed(now Stamp) {
	s.Status, s.Stood, s.Pause = StateReady, s.StoodAt(now), nil
}

// Left is how long the session has to live at now, by its TTL; ok is false where
// it has none. What the wall clock says doesn't count, but across a reboot.
func (s State) Left(now Stamp) (left time.Duration, ok bool) {
	return s.TTL - s.Created.passed(now), s.TTL > 0
}

// loadState reads a session.json. What is not one, whole and of a schema that
// this program knows, is an error.
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
		return s, tool.Errorf(tool.Unsupported, "the session was made by a newer wisbox; use that one").In("session")
	}
	if s.Schema < 1 || s.ID == "" || s.Status == "" {
		return State{}, errors.New("session.json lacks its schema, id or state")
	}
	switch { // whoever reads it may rely on one of the two
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

// saveState replaces session.json: a reader, and whoever comes after a crash,
// sees the old state or the new one. The caller holds state.lock.
func saveState(dir *os.Root, s State) error {
	raw, err := encodeState(s)
	if err != nil {
		return err
	}
	return replaceFile(dir, stateFile, raw)
}

func encodeState(s State) ([]byte, error) {
	raw, err := json.MarshalIndent(s, "", "  ")
	return append(raw, '\n'), err
}

// replaceFile writes name by way of name.new, and returns when it is on disk. One writer at
// a time.
func replaceFile(dir *os.Root, name string, content []byte) error {
	if err := replaceLater(dir, name, content); err != nil {
		return err
	}
	return syncDir(dir)
}

// replaceLater is replaceFile, but it doesn't wait for the name: until that is on disk, name
// is the old file there.
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
	if errors.Is(err, unix.EINVAL) { // a file system without it
		err = nil
	}
	return errors.Join(err, f.Close())
}
