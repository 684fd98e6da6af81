package registry

import (
	"crypto/rand"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"
)

// State is the state of a sandbox.
type State string

// The states. Clients see only the first two.
const (
	Running  State = "running"
	Paused   State = "paused"
	creating State = "creating"
	ending   State = "ending" // being removed, for good
)

// Record is the persistent state of a sandbox. It has a file of its own, which includes the
// variables of programs, but no token.
type Record struct {
	ID    string `json:"id"`
	Owner string `json:"owner"`
	// Version is incremented by each change in a [Book].
	Version int64 `json:"version,omitempty"`
	// Name is the owner's name for a session used through a remote, unique per owner. It is ""
	// for sandboxes of E2B clients.
	Name     string `json:"name,omitempty"`
	State    State  `json:"state"`
	Template string `json:"template"`
	// CPUs, Memory and Disk are the limits of the sandbox, Memory and Disk in bytes. Beside is
	// the limit of the host's own files for it, such as logs, in addition to Disk.
	CPUs     float64           `json:"cpus,omitempty"`
	Memory   int64             `json:"memory,omitempty"`
	Disk     int64             `json:"disk,omitempty"`
	Beside   int64             `json:"beside,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	// Started and End are in whole milliseconds. A resume renews both.
	Started time.Time `json:"started"`
	End     time.Time `json:"end"`
	// AutoPause pauses the sandbox at its end instead of removing it.
	AutoPause bool `json:"auto_pause,omitempty"`
	// AutoPauseFiles makes that pause keep only the files.
	AutoPauseFiles bool `json:"auto_pause_files,omitempty"`
	// FilesOnly reports whether a paused sandbox has no programs any more.
	FilesOnly bool `json:"files_only,omitempty"`
	// Halting reports whether programs are being ended or restarted, so a paused sandbox may
	// still have some. If that was interrupted, they are ended later.
	Halting bool `json:"halting,omitempty"`
	// AutoResume resumes a paused sandbox with programs when a request for one of its ports
	// arrives.
	AutoResume bool `json:"auto_resume,omitempty"`
	Rules
	// Wanted are the rules that are replacing Rules. If the change was interrupted, either of
	// them may be in force.
	Wanted *Rules `json:"wanted,omitempty"`
	// ClosedPorts requires the traffic token in requests for programs' ports.
	ClosedPorts bool `json:"closed_ports,omitempty"`
	// TLSPorts are the ports whose programs speak TLS.
	TLSPorts []uint16 `json:"tls_ports,omitempty"`
	// MaskHost is the Host header that programs receive; "" means that of the request.
	MaskHost string `json:"mask_host,omitempty"`
}

// Rules are the network rules of a sandbox.
type Rules struct {
	// Internet reports whether programs may connect to public hosts. Allow and Deny are rules of
	// package egress/policy.
	Internet bool     `json:"internet,omitempty"`
	Allow    []string `json:"allow,omitempty"`
	Deny     []string `json:"deny,omitempty"`
	// Network is the client's original network configuration.
	Network json.RawMessage `json:"network,omitempty"`
}

func (r *Rules) are(allow, deny []string) bool {
	return slices.Equal(r.Allow, allow) && slices.Equal(r.Deny, deny)
}

// Counts reports whether the sandbox counts towards its owner's quota.
func (r *Record) Counts() bool { return r.State != ending }

// allDisk returns the maximum disk usage of the sandbox on the host.
func (r *Record) allDisk() int64 { return r.Disk + r.Beside }

func (r Record) clone() Record {
	r.Metadata, r.Env = maps.Clone(r.Metadata), maps.Clone(r.Env)
	return r
}

const idLetters = "abcdefghijklmnopqrstuvwxyz0123456789"

// idLen gives an ID 103 random bits: an ID can't be guessed.
const idLen = 20

var idForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]{20}$`) })

// IsID reports whether s has the form of a sandbox ID.
func IsID(s string) bool { return idForm().MatchString(s) }

var idIn = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b[a-z0-9]{20}\b`) })

// Quiet returns the text of an error for a log, without sandbox IDs.
func Quiet(err error) string { return idIn().ReplaceAllString(err.Error(), "SANDBOX") }

// newID returns a random ID, which is valid as a label of a host name.
func newID() string {
	id := make([]byte, 0, idLen)
	for one := make([]byte, 1); len(id) < idLen; {
		_, _ = rand.Read(one)          // can't fail
		if n := int(one[0]); n < 252 { // 7 * 36: all letters are equally likely
			id = append(id, idLetters[n%36])
		}
	}
	return string(id)
}
