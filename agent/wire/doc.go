// Package wire is the protocol between a sandbox's agent and its host: the
// messages, their numbers and their limits. Both ends import it and nothing else
// of each other. It uses the standard library only, because the agent does.
//
// Both directions of a connection are frames:
//
//	length u32 | type u8 | call u32 | payload of length bytes, at most 1 MiB
//
// Numbers are big-endian. The host numbers the calls; a number is used once.
// Types to the agent:
//
//	0x01 run      flags u16, seconds f64, columns u16, rows u16, bytes of stdout
//	              to forward (-1 all) and of tail i64 each, the same of stderr,
//	              number of arguments u32, key of a Python source 32 bytes; then
//	              directory, of a detached program a label, arguments and
//	              environment as NUL-ended byte strings
//	0x02 kill     ends the call's whole tree; the payload is the status that
//	              the exit then has
//	0x03 signal   u8: to the program's process group
//	0x04 resize   u16 columns, u16 rows
//	0x05 source   "key name\n" and a Python source, to be called by key
//	0x06 ping     answered with a pong of the same payload
//	0x07 limits   answered with the cgroup's limits
//	0x08 leave    the agent ends all programs and then itself: a sandbox whose only
//	              end is that of its first process is over
//	0x09 put      mode u16, a name that ends with NUL, and the content of a file
//	              in the secrets' directory; answered with done
//	0x0a attach   id u64: the call takes over a detached program
//	0x0b list     answered with listed; "alone" ends all other connections before
//	0x0c port     u16: answered with port
//	0x0d taken    the host has the exit of this call, a detached program, which the
//	              agent keeps until then for another connection
//	0x0e suspend  no time limit runs until resume, or the end of the connection;
//	              answered with done, before the sandbox is paused
//	0x0f resume   answered with done
//	0x10+channel  data: stdin 0, control in 3; an empty frame is the end of file
//	0x20+channel  credit u32: so many more bytes may be sent to the host
//
// Types to the host:
//
//	0x41 hello    JSON ([Hello]), first and once
//	0x42 pong     0x43 limits    JSON, name to value
//	0x44 started  the program has begun; only when asked for: pid u32, and of a
//	              detached program its id u64
//	0x45 exit     JSON ([Exit]), the last frame of a call
//	0x46 done     empty, or a JSON [StartError] that says why not
//	0x47 listed   JSON, a list of [Detached]
//	0x48 port     u8: 1 where somebody listens on that TCP port, at 127.0.0.1 or ::1
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
// # Descriptors
//
// A connection may have a second socket, which keeps messages apart. The host asks
// there, one at a time, for sockets of the sandbox's network; each answer brings one, of
// which the agent keeps no copy, or says why not:
//
//	listen ADDRESS PORT    TCP, bound and listening; IPv4, port 0 is any
//	udp ADDRESS PORT       UDP, bound
//	socket                 TCP, not connected; IPv4
//	socket6                the same, IPv6
//
// The answer is "+" with the descriptor, or "-" and a text.
//
// # Sockets
//
// Where no descriptor can be handed over, the agent keeps the sockets and the frames
// carry what goes over them. The host numbers them among the calls. To the agent:
//
//	0x50 open     a new socket: "listen ADDRESS PORT" or "udp ADDRESS PORT" as above;
//	              "accept LISTENER", the next connection to the listener of that
//	              number; "connect PORT", to 127.0.0.1 or, where that is refused,
//	              ::1; or "connect ADDRESS PORT", to that of the loopback device;
//	              answered with opened
//	0x55 close    as by close(2), once what was sent before is written; answered with
//	              closed
//	0x56 reset    the other end sees a reset; answered with closed
//
// To the host:
//
//	0x51 opened   JSON ([Opened]); one that says why not is the last frame of a socket
//	0x57 closed   else the last frame: both directions have ended, or the socket
//	              was closed, or the other end has reset it
//
// Both ways, on connections and on UDP:
//
//	0x52 data     at most 64 KiB; on UDP a datagram after the address of the other
//	              end: 4 bytes and the port u16
//	0x53 credit   u32: so many more bytes may be sent in the other direction
//	0x54 end      no more data follows; not on UDP
//
// Each direction starts with a credit of 128 KiB, but UDP to the agent, which
// sends a datagram at once or drops it. The agent accepts only what the host asks for, so
// the host alone decides how many connections there are: others wait in the
// kernel's queue. To a reader closed without an end before it means that the data is cut. When the
// host's connection ends, all its sockets are reset.
//
// The host treats the other end as hostile: a frame that is too large, an
// unknown type, call or socket, more data than granted, a second exit, end or closed
// ends the connection, and the calls and sockets in flight are lost; nothing else happens.
package wire
