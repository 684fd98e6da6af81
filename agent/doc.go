// Package agent is the resident process of a sandbox and the protocol to it:
// programs start in about a millisecond, because nothing is copied and nothing
// is waited for between the request and the exec, and nothing that they start
// outlives them.
//
// The agent is a Python program of eleven modules (py/), standard library only,
// Python 3.9 or newer, embedded here and handed over the very stream that it
// then serves: [Command] is what to execute as uid 0 in the sandbox, [Dial] does
// the rest over its stdin and stdout. The package knows no container engine: any
// stream will do. It isolates nothing by itself; the sandbox around it does.
//
// # Inside
//
// The agent pumps and keeps time. Programs belong to monitors, uid 0 children
// of the agent that are child subreapers: all descendants of a program are
// descendants of its monitor, double forks and new sessions included. When the
// program ends or is to end, its monitor kills its children until it has none,
// and only then reports. A monitor that doesn't is killed by the agent, which
// then does the same. When the stream ends, or the agent dies, each monitor
// kills its tree.
//
// A plain program's monitor is a launcher, which serves one program after the
// other. It starts each by posix_spawn; for that moment its real and effective
// uid are those of programs and only the saved one is 0, so that the program has
// all three of its own after the exec, and no capability. A program that signals
// everything in that moment can kill the launcher as it could have killed the
// program a moment later, and the call ends as one that was killed. It can't
// trace the launcher, nor read or write its memory; a launcher whose scheduling
// was changed is not used again. At any other time monitors can't be signalled.
//
// Programs run as uid 1000 without any capability, at nice 10, and first in line
// for the kernel's out-of-memory killer.
//
// # Stream
//
// After the bootstrap (eight hexadecimal digits of length, then the source)
// both directions are frames:
//
//	length u32 | type u8 | call u32 | payload of length bytes, at most 1 MiB
//
// Numbers are big-endian. The host numbers the calls; a number is used once.
// Types to the agent:
//
//	0x01 run      flags u8, seconds f64, columns u16, rows u16, bytes of stdout
//	              to forward (-1 all) and of tail i64 each, the same of stderr,
//	              number of arguments u32, key of a Python source 32 bytes; then
//	              directory, arguments and environment as NUL-ended byte strings
//	0x02 kill     ends the call's whole tree; the payload is the status that
//	              the exit then has
//	0x03 signal   u8: to the program's process group
//	0x04 resize   u16 columns, u16 rows
//	0x05 source   "key name\n" and a Python source, to be called by key
//	0x06 ping     answered with a pong of the same payload
//	0x07 limits   answered with the cgroup's limits
//	0x08 move     at most once: from now on both directions go by the socket that
//	              the hello named; answered there by a pong of the same payload
//	0x10+channel  data: stdin 0, control in 3; an empty frame is the end of file
//	0x20+channel  credit u32: so many more bytes may be sent to the host
//
// Types to the host:
//
//	0x41 hello    JSON ([Hello]), first and once
//	0x42 pong     0x43 limits    JSON, name to value
//	0x44 started  the program is about to be executed; only when asked for
//	0x45 exit     JSON, the last frame of a call
//	0x10+channel  data: stdout 1, stderr 2, control out 4, at most 64 KiB
//	0x20+channel  credit u32 for stdin and control in
//	0x30+channel  tail: the last bytes of a stream that was cut, before the exit
//
// Each channel starts with a credit of 256 KiB in its direction. So one writer
// that blocks on the host stops its own stream only, and memory is bounded on
// both sides. Everything but data is small and never waits for credit. Only
// control out waits for others: what the program had written to its stdout and
// stderr goes to the host, and there to its writers, before the message.
//
// The host takes the other end for hostile: a frame that is too large, an
// unknown type or call, more data than granted or a second exit ends the
// connection, and the calls in flight are lost; nothing else happens.
//
// # Socket
//
// What the agent was started through is likely a chain of relays, each to be woken
// up for each frame. So it makes a socket pair and names the host's end in its
// hello. A host on the same machine that may trace the agent takes that end out of
// it (pidfd_getfd) and has it move; the agent then closes its copy. The socket has
// no name in any file system or network, programs can't trace the agent, and no
// child of it keeps a descriptor of it: nothing in the sandbox can get at it. The
// host makes sure of the process, of the kind of the descriptor and of its inode
// number, and that who answers there knows what was said on the stream. Where any
// of that fails before the move, the stream serves as well.
//
// # Python programs
//
// A sandbox.PythonProgram is executed once, in a template that the agent forks:
// its source as a module of the program's name, with the interpreter's site
// packages but no user site. Each call is a fork of that template, made before
// the call is known. Where the source has a function warm(inp, out), it is called
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
