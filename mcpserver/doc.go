// Package mcpserver offers a set of tools over the Model Context Protocol, on
// pipes and over HTTP, with the official Go SDK.
//
// It decides what goes over the wire and who may speak: framing, limits,
// authority, the forms of results and errors, cancellation, progress, and which
// session a connection has. It knows nothing of programs or containers: a
// tool is a name, two schemas and a call. What else a session can do ([Guided],
// [Watched], [OwnNamed]) is found by [As], through whatever wraps the session.
//
// # Sessions
//
// Tools are listed from the set, without a session. The first call of a
// connection opens one by [Options.Open]; it is closed when the connection ends.
// Where the protocol has no connections (HTTP, revision 2026-07-28) a client
// opens a session by the tool session_open and names it in every call.
//
// # Long calls
//
// A client that declares the protocol's tasks extension is answered with a task once a
// call has run for [Options.TaskAfter]; package internal/mcptask is about those. Tasks
// are of a token or of a pipe, live in memory, and end with the server.
//
// # What clients see beside the tools
//
// Files, diffs against snapshots, outputs that were too long and the summary of
// the workspace are resources, which a client can list page by page, read, and be
// told of when they change. A client that sets a level gets a line of log a call.
//
// # What a client can't do
//
// Nothing that it sends ends the server: garbage, over-long lines, batches,
// requests with the same id. It never makes the server hold more than a bounded
// amount of memory: when too much is unanswered the server stops reading.
package mcpserver
