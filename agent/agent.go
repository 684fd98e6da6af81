package agent

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"

	"github.com/wisbox/wisbox/sandbox"
)

//go:embed py/*.py
var sources embed.FS

// modules are the agent's, in the order in which they are executed: each
// imports only earlier ones.
var modules = []string{"wire", "kernel", "direct", "cgroup", "monitor", "launch", "python", "streams", "calls", "slots", "main"}

// version is the protocol's; both ends come from this package, so another one
// in the hello means that something else answered.
const version = 3

// bootstrap reads the agent's source from the stream and executes it. -I keeps
// the environment and the current directory out, -S the site packages.
const bootstrap = `import os
def r(n):
 b=b''
 while len(b)<n:
  c=os.read(0,n-len(b))
  if not c:os._exit(1)
  b+=c
 return b
s=r(int(r(8),16))
exec(compile(s,'wisbox-agent','exec'),{'__name__':'wisbox_agent'})`

// Command is the argv to execute in the sandbox as uid 0, with stdin and stdout
// as the stream for [Dial]. What comes on stderr is for a log.
func Command() []string {
	return []string{"python3", "-I", "-S", "-c", bootstrap}
}

// Options of a connection. Nil and the zero value work.
type Options struct {
	// Once makes the agent serve one command and end: the way for a single
	// command where no resident agent is wanted. The guarantees are the same.
	Once bool
	// Workspace is the directory that Cmd.Dir is relative to, in the sandbox;
	// default [sandbox.WorkspaceDir].
	Workspace string
	// PID finds the agent's process among this machine's, for the host to take the
	// end of a socket out of it that the agent made: the frames then go that way, and
	// no relay has to be woken up for each. Without PID, or where it or the taking
	// fails, they stay on the stream.
	PID func(ctx context.Context, hello Hello) (int, error)
}

// Hello is what the agent says of itself and its surroundings.
type Hello struct {
	Version  int    `json:"version"`
	Python   string `json:"python"` // 3.11.2
	UID      int    `json:"uid"`
	PID      int    `json:"pid"`      // in the sandbox
	Caps     string `json:"caps"`     // the agent's permitted capabilities, hexadecimal
	Bounding string `json:"bounding"` // the bounding set that programs get, hexadecimal
	Seccomp  bool   `json:"seccomp"`  // a filter is in force
	// CgroupVersion is 1 or 2, as seen inside.
	CgroupVersion int `json:"cgroup"`
	// Limits are the cgroup's, as the kernel prints them: memory, swap, pids,
	// cpu, and cpu_period on version 1. A missing one could not be read.
	Limits map[string]string `json:"limits"`
	// Rlimits are soft and hard limits by lower-case name: nofile, fsize, core. -1 is none.
	Rlimits map[string][2]int64 `json:"rlimits"`
	// Socket is the agent's descriptor of the host's end of a socket, and that
	// socket's inode number, see [Options.PID].
	Socket [2]uint64 `json:"socket"`
	// Gaps says in sentences which guarantee doesn't hold.
	Gaps []string `json:"gaps"`
}

// loader makes the modules of MODULES a package, wisbox_agent, and starts it.
const loader = `import sys
package = sys.modules['wisbox_agent'] = type(sys)('wisbox_agent')
package.__path__ = []
for name, source in MODULES:
 full = 'wisbox_agent.' + name
 module = sys.modules[full] = type(sys)(full)
 module.__package__ = 'wisbox_agent'
 setattr(package, name, module)
 exec(compile(source, full, 'exec'), module.__dict__)
del MODULES, source
package.main.serve(**OPTIONS)
`

// handOver writes the agent's source to its bootstrap. What is JSON here, of
// numbers and strings in ASCII, is Python too.
func handOver(w io.Writer, opts *Options) error {
	pairs := make([][2]string, len(modules))
	for i, name := range modules {
		text, err := sources.ReadFile("py/" + name + ".py")
		if err != nil {
			return err
		}
		pairs[i] = [2]string{name, string(text)}
	}
	list, err := json.Marshal(pairs)
	if err != nil {
		return err
	}
	once := 0
	if opts.Once {
		once = 1
	}
	program := fmt.Sprintf("MODULES = %s\nOPTIONS = {'once': %d, 'workspace': %q}\n%s", list, once, opts.Workspace, loader)
	_, err = fmt.Fprintf(w, "%08x%s", len(program), program)
	return err
}

func (o *Options) withDefaults() *Options {
	filled := Options{}
	if o != nil {
		filled = *o
	}
	if filled.Workspace == "" {
		filled.Workspace = sandbox.WorkspaceDir
	}
	return &filled
}
