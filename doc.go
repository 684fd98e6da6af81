// Package wisbox gives an agent a workspace: a directory on the host that
// programs see as /workspace in a container without network, with limits on
// processor, memory, processes and disk, and one set of tools over it.
//
// A [Manager] opens a [Session]. The session's directory is there at once, its
// container comes with the first program. Every tool of the session is called
// by name with JSON, as agents do it, through [Session.Call]; [Session.Run] and
// [Session.Start] run programs with the caller's own streams.
//
// What a program did (exit code, timeout, out of memory) is data in the result.
// An error is a *tool.Error with a kind from a closed set.
//
// examples/embed is a whole program, the README has the build tags that Podman's
// client needs.
//
// It is not a boundary against a kernel exploit: see SECURITY.md.
package wisbox
