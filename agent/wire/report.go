package wire

import (
	"encoding/binary"
	"net/netip"
)

// Hello describes the agent and its surroundings.
type Hello struct {
	Version  int    `json:"version"`
	UID      int    `json:"uid"`
	PID      int    `json:"pid"`      // in the sandbox
	Caps     string `json:"caps"`     // the agent's permitted capabilities, hexadecimal
	Bounding string `json:"bounding"` // the bounding set that programs get, hexadecimal
	Seccomp  bool   `json:"seccomp"`  // a filter is in force
	// NoNewPrivs reports whether the agent's programs can't gain rights; agents before its introduction don't say it.
	NoNewPrivs bool `json:"no_new_privs"`
	// CgroupVersion is 1 or 2, as seen inside.
	CgroupVersion int `json:"cgroup"`
	// Limits are the cgroup's, as the kernel prints them: memory, swap, pids,
	// cpu, and cpu_period on version 1; oom_group on version 2; and tmp, the bytes of /tmp.
	// A missing one could not be read.
	Limits map[string]string `json:"limits"`
	// Rlimits are soft and hard limits by lower-case name: nofile, fsize, core. -1 is none.
	Rlimits map[string][2]int64 `json:"rlimits"`
	// Workspace is the directory that programs start in: its device and inode numbers.
	Workspace [2]uint64 `json:"workspace"`
	// Has are the programs of [Looked] that the image has, by name.
	Has map[string]bool `json:"has"`
	// Interfaces are those of the sandbox's network; nil if they could not be read.
	Interfaces []string `json:"interfaces"`
	// Gaps says in sentences which guarantee doesn't hold.
	Gaps []string `json:"gaps"`
}

// Looked lists the programs that a hello reports.
var Looked = []string{"bash", "python3", "sbcl", "sh"}

// Exit is an exit frame.
type Exit struct {
	Status  string      `json:"status"`
	Code    int         `json:"code"`
	Signal  int         `json:"signal"` // 0 is none
	Nanos   int64       `json:"ns"`
	Out     [2]int64    `json:"out"`    // bytes of stdout and stderr
	User    float64     `json:"user"`   // seconds
	System  float64     `json:"system"` // seconds
	MaxRSS  int64       `json:"rss"`    // bytes
	Shared  bool        `json:"shared"`
	Notices []string    `json:"notices"`
	Error   *StartError `json:"error"`
}

// Detached is a program that outlives its connection.
type Detached struct {
	ID      uint64   `json:"id"`
	PID     int      `json:"pid"`     // in the sandbox, 0 until it has started
	Label   string   `json:"label"`   // of the request
	Argv    []string `json:"argv"`    // the first 4 KiB
	Seconds float64  `json:"seconds"` // since it began
	Held    bool     `json:"held"`    // a connection has it
	Ended   bool     `json:"ended"`   // whoever attaches gets its last output and its exit
	Input   bool     `json:"input"`   // its stdin is open
	Read    [2]int64 `json:"read"`    // bytes of stdout and stderr that former readers have
	Dropped [2]int64 `json:"dropped"` // of those that nobody read in time
}

// Opened is the result of a request for a socket.
type Opened struct {
	Local netip.AddrPort `json:"local,omitzero"`
	Peer  netip.AddrPort `json:"peer,omitzero"` // of a connection
	// Errno is why there is none, 0 where there is one.
	Errno int `json:"errno,omitempty"`
}

// AddressSize is the size of an address in the data of a socket for UDP.
const AddressSize = 4 + 2

// AppendAddress appends an address of IPv4 to b.
func AppendAddress(b []byte, addr netip.AddrPort) []byte {
	four := addr.Addr().As4()
	return binary.BigEndian.AppendUint16(append(b, four[:]...), addr.Port())
}

// Address reads an address; b has at least [AddressSize] bytes.
func Address(b []byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), binary.BigEndian.Uint16(b[4:]))
}

// StartError says why a program could not be started as asked.
type StartError struct {
	// Kind is not_found, not_dir, escape, permission or invalid, all of the
	// directory; source, of a Python program that can't be loaded; python, where the
	// image has none that can load it; unknown or held, of a detached program; or internal.
	Kind    string `json:"kind"`
	Message string `json:"message"`
}
