// Package agent is the host's side of the resident process of a sandbox: programs
// start in less than a millisecond, because nothing is copied or awaited between
// the request and the exec, and nothing that they start outlives them.
//
// The agent is a separate program (agent/inside), static and without dependencies; it
// comes with the library (agent/native), is the first process of every container, and
// speaks the protocol of agent/wire over any stream. [Dial] takes such a stream. The
// package knows no container engine; agent/resident finds the stream.
//
// # Inside
//
// The agent copies streams and keeps time limits. Programs belong to monitors, uid 0 children
// of the agent that are child subreapers: all descendants of a program are descendants of its
// monitor, double forks and new sessions included. When the program ends or must end, its monitor kills its children
// until none is left, and only then reports. If a monitor fails, the agent kills it, and then kills the tree itself.
// When a connection ends, its programs end too.
//
// A plain program's monitor serves one program after the other and is always uid 0, so
// programs can't signal, trace or reschedule it. It forks each with vfork semantics; the
// child becomes uid 1000 without any capability, right before the exec.
//
// Programs run as uid 1000 without any capability, at nice 10, and first in line
// for the kernel's out-of-memory killer.
//
// # Python programs
//
// A sandbox.PythonProgram is executed once, in a template that the agent starts
// and that forks: its source is a module of the program's name, with the interpreter's site
// packages but no user site. Each call is a fork of that template, made before
// the call is known. If the source has a function warm(inp, out), it is called
// there, with an empty inp and an out that leads nowhere, to do what main does
// with nothing in it: the memory that it writes is then copied already. When the
// call comes the fork gives
// up its rights and then calls main(inp, out): inp is a buffered binary reader
// of descriptor 3, out an unbuffered binary writer of descriptor 4 (Cmd.Control;
// without it inp is empty and what goes to out is thrown away). sys.stdin,
// sys.stdout and sys.stderr are fresh text streams on descriptors 0 to 2,
// sys.argv is the program's name, os.environ the program's environment,
// sys.modules["__main__"] an empty module. The process exits with 0 when main
// returns, by SystemExit's rules, or with 1 and a traceback on stderr. It is
// not dumpable: other programs can't read or write its memory.
package agent

import "github.com/wisbox/wisbox/agent/wire"

// Hello describes the agent and its surroundings.
type Hello = wire.Hello
