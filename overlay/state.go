package overlay

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

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
	StateClosing SessionState = "closing" // being removed; without a live client the removal was interrupted
	StateLost    SessionState = "lost"    // its session.json can't be read; it can only be removed
)

// State is the content of session.json.
type State struct {
	Schema int          `json:"schema"`
	ID     string       `json:"id"`
	Kept   bool         `json:"kept"`
	Status SessionState `json:"state"`
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
	User *Owner `json:"user,omitempty"`
	// Workspace is the directory that workspace/ must be; Next is the one that
	// it may be already while [Dir.Reset] exchanges the two.
	Workspace Pin  `json:"workspace"`
	Next      *Pin `json:"next_workspace,omitempty"`
	// Disk is the session's share of the disk; nil is no limit.
	Disk *Disk `json:"disk,omitempty"`
	// Settings is whatever the caller keeps with the session.
	Settings json.RawMessage `json:"settings,omitempty"`
}

// Owner is a host user and group.
type Owner struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
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
// sessions have a TTL or an idle time that counts.
func (s State) Expired(now Stamp) (reason string, expired bool) {
	switch {
	case s.TTL > 0 && s.Created.passed(now) >= s.TTL:
		return "its time to live of " + s.TTL.String() + " is over", true
	case s.Idle > 0 && s.LastUsed.passed(now) >= s.Idle:
		return "unused for " + s.Idle.String(), true
	}
	return "", false
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
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(dir, stateFile, append(raw, '\n'))
}

// replaceFile writes name by way of name.new. One writer at a time.
func replaceFile(dir *os.Root, name string, content []byte) error {
	temp := name + ".new"
	err := writeSynced(dir, temp, content)
	if err == nil {
		err = dir.Rename(temp, name)
	}
	if err != nil {
		_ = dir.Remove(temp)
		return err
	}
	return syncDir(dir)
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
