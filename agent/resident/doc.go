// Package resident is what the host does around an agent, wherever that agent
// runs: it connects once for all callers and again after a loss, hands over
// secrets, ends programs, and compares the limits that were asked for with those
// that the kernel says. What differs between a container, a process of a test and
// a place that comes later is a [Link]: a way to get connections.
//
// # How an agent is reached
//
// The agent is pid 1 of its container, and waits at descriptor 3 for hosts: the
// other end of that socket pair is its descriptor 4. [Taken] takes a copy of that
// one out of the process (pidfd_getfd, Linux 5.6) and sends over it the ends of
// socket pairs that it makes: each message is one new connection. Nothing is
// executed for it, and nothing has a name in any file system.
//
// The kernel asks for the right to trace the agent: a host's root has it, and the
// owner of the container's user namespace, and nothing in the container. The
// process is held by a pidfd before it is looked at; it must be the first of its
// namespace and execute the agent, and the descriptor must be a socket of the kind
// that the agent makes.
//
// [Relayed] is for where that can't be: gVisor, whose processes the host doesn't
// see, and services on other machines. No descriptor comes that way, so the sandbox's
// sockets stay with the agent, and frames carry what goes over them
// ([Agent.Network]). [Spawned] is for tests.
package resident
