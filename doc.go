// Package wisbox gives an agent a workspace: a directory on the host that
// programs see as /workspace in a container without network, with limits on
// processor, memory, processes and disk, and one set of tools over it.
//
// A [Manager] opens a [Session]. The session's directory exists at once; its
// container is created for the first program. [Session.Call] calls a tool by name
// with JSON, as agents do; [Session.Run] and [Session.Start] run programs with the
// caller's own streams.
//
// The outcome of a program (exit code, timeout, out of memory) is data in the result.
// An error is a *tool.Error with a kind from a fixed set.
//
// See examples/embed for a whole program, and the README for the build tags that
// Podman's client needs.
//
// A session doesn't protect against exploits of the kernel: see SECURITY.md.
package wisbox
