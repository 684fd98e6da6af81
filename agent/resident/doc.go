// Package resident is the host's work around an agent, wherever that agent
// runs: it connects once for all callers and again after a loss, hands over
// secrets, ends programs, and compares the requested limits with those that the
// kernel reports. A [Link], a way to get connections, hides the differences
// between a container, a test's process and other places.
//
// # How an agent is reached
//
// The agent is pid 1 of its container, and waits at descriptor 3 for hosts: the
// other end of that socket pair is its descriptor 4. [Taken] copies descriptor 4
// out of the process (pidfd_getfd, Linux 5.6) and sends over it the ends of
// socket pairs that it makes: each message is one new connection. Nothing is
// executed for it, and nothing has a name in any file system.
//
// The kernel requires the right to trace the agent, which the host's root and the
// owner of the container's user namespace have, and nothing in the container has. The
// process is held by a pidfd before it is looked at; it must be the first of its
// namespace and execute the agent, and the descriptor must be a socket of the kind
// that the agent makes.
//
// [Relayed] is for gVisor, whose processes the host doesn't see, and for services
// on other machines. It can't pass descriptors, so the sandbox's sockets stay with
// the agent, and frames carry their data ([Agent.Network]). [Spawned] is for tests.
package resident
