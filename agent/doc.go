// Package agent is the resident process of a sandbox and the protocol to it:
// programs start in about a millisecond, because nothing but a fork waits
// between the request and the exec, and nothing that they start outlives them.
//
// The process is one Python program, standard library only, Python 3.9 or
// newer, embedded here and handed over the very stream that it then serves:
// [Command] is what to execute as uid 0 in the sandbox, [Dial] does the rest
// over its stdin and stdout. The package knows no container engine: any stream
// will do. It isolates nothing by itself; the sandbox around it does.
//
// # Inside
//
// The agent pumps and keeps time. For each program there is a monitor, a uid 0
// child subreaper forked in advance, which forks the program's process in
// advance too. All descendants of a program are therefore descendants of its
// monitor, double forks and new sessions included: when the program ends or is
// to end, the monitor kills its children until it has none, and only then
// reports. Monitors can't be signalled or traced by programs, which run as uid
// 1000 without any capability, at nice 10, and first in line for the kernel's
// out-of-memory killer. When the stream ends, or the agent dies, each monitor
// kills its tree.
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
//	0x01 run      a line of JSON ([request]), then argv and environment as
//	              NUL-ended byte strings
//	0x02 kill     ends the call's whole tree; the payload is the status that
//	              the exit then has
//	0x03 signal   u8: to the program's process group
//	0x04 resize   u16 columns, u16 rows
//	0x05 source   "key name\n" and a Python source, to be called by key
//	0x06 ping     answered with a pong of the same payload
//	0x07 limits   answered with the cgroup's limits
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
// both sides. Everything but data is small and never waits for credit.
//
// The host takes the other end for hostile: a frame that is too large, an
// unknown type or call, more data than granted or a second exit ends the
// connection, and the calls in flight are lost; nothing else happens.
//
// # Python programs
//
// A sandbox.PythonProgram is executed once, in a template that the agent forks:
// its source as a module of the program's name, with the interpreter's site
// packages but no user site. Each call is a fork of that template which gives
// up its rights and then calls main(inp, out): inp is a buffered binary reader
// of descriptor 3, out an unbuffered binary writer of descriptor 4 (Cmd.Control;
// without it inp is empty and what goes to out is thrown away). sys.stdin,
// sys.stdout and sys.stderr are fresh text streams on descriptors 0 to 2,
// sys.argv is the program's name, os.environ the program's environment,
// sys.modules["__main__"] an empty module. The process exits with 0 when main
// returns, by SystemExit's rules, or with 1 and a traceback on stderr. It is
// not dumpable: other programs can't read or write its memory.
package agent
