package registry

import (
	"crypto/rand"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"time"
)

// State is where a sandbox stands in its life.
type State string

// The states. Clients see the first two.
const (
	Running  State = "running"
	Paused   State = "paused"
	creating State = "creating"
	ending   State = "ending" // being removed; it never comes back
)

// Record is what is kept of a sandbox. It stands in a file of its own, with its programs'
// variables, and holds no token.
type Record struct {
	ID       string `json:"id"`
	Owner    string `json:"owner"`
	State    State  `json:"state"`
	Template string `json:"template"`
	// CPUs, Memory and Disk are what the sandbox may take, Memory and Disk in bytes. Beside is
	// what the host may keep of it beside Disk: logs and the like.
	CPUs     float64           `json:"cpus,omitempty"`
	Memory   int64             `json:"memory,omitempty"`
	Disk     int64             `json:"disk,omitempty"`
	Beside   int64             `json:"beside,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	// Started and End are in whole milliseconds. A resume renews both.
	Started time.Time `json:"started"`
	End     time.Time `json:"end"`
	// AutoPause pauses at the end; otherwise the sandbox is removed.
	AutoPause bool `json:"auto_pause,omitempty"`
	// AutoResume resumes a paused one when a request comes for one of its ports.
	AutoResume bool `json:"auto_resume,omitempty"`
	Rules
	// Wanted are rules that are being put in place of Rules. Where it is set and nobody
	// does that any more, it isn't known which of both the sandbox has.
	Wanted *Rules `json:"wanted,omitempty"`
	// ClosedPorts has requests for programs' ports carry the traffic token.
	ClosedPorts bool `json:"closed_ports,omitempty"`
	// MaskHost is the Host that programs get; "" is the request's.
	MaskHost string `json:"mask_host,omitempty"`
}

// Rules are those of a sandbox's network.
type Rules struct {
	// Internet says that programs may connect to public hosts; Allow and Deny are the
	// rules, as package egress/policy has them.
	Internet bool     `json:"internet,omitempty"`
	Allow    []string `json:"allow,omitempty"`
	Deny     []string `json:"deny,omitempty"`
	// Network is what the client asked of the network, as it came.
	Network json.RawMessage `json:"network,omitempty"`
}

func (r *Rules) are(allow, deny []string) bool {
	return slices.Equal(r.Allow, allow) && slices.Equal(r.Deny, deny)
}

// Counts reports whether the sandbox takes one of its owner's places.
func (r *Record) Counts() bool { return r.State != ending }

// allDisk is what the sandbox may take of the host's disk.
func (r *Record) allDisk() int64 { return r.Disk + r.Beside }

func (r Record) clone() Record {
	r.Metadata, r.Env = maps.Clone(r.Metadata), maps.Clone(r.Env)
	return r
}

const idLetters = "abcdefghijklmnopqrstuvwxyz0123456789"

// idLen gives an ID 103 random bits: who knows one was given it.
const idLen = 20

var idForm = regexp.MustCompile(`^[a-z0-9]{20}$`)

// IsID reports whether a text has the form of a sandbox's ID.
func IsID(s string) bool { return idForm.MatchString(s) }

var idIn = regexp.MustCompile(`\b[a-z0-9]{20}\b`)

// Quiet is the text of an error for a log, without the IDs of sandboxes.
func Quiet(err error) string { return idIn.ReplaceAllString(err.Error(), "SANDBOX") }

// newID makes an ID, which is a label of a host name.
func newID() string {
	id := make([]byte, 0, idLen)
	for one := make([]byte, 1); len(id) < idLen; {
		_, _ = rand.Read(one)          // it never fails
		if n := int(one[0]); n < 252 { // 7 * 36: each letter is as likely
			id = append(id, idLetters[n%36])
		}
	}
	return string(id)
}
