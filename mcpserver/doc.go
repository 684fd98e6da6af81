// Package mcpserver serves a set of tools over the Model Context Protocol, on pipes and over HTTP, with the official Go
// SDK.
//
// It handles the protocol and access to it: framing, limits, authority, the forms of results and errors, cancellation,
// progress, and the session of each connection. It knows nothing of programs or containers: a tool is a name, two
// schemas and a call. [As] finds a session's optional capabilities ([Guided], [Watched], [OwnNamed]) through its
// wrappers.
//
// # Sessions
//
// Tools are listed from the set, without a session. The first call of a connection opens a session with [Options.Open];
// it is closed when the connection ends. If the protocol has no connections (HTTP, revision 2026-07-28) a client opens
// a session with the tool session_open and names it in every call.
//
// # Long calls
//
// A client that declares the protocol's tasks extension is answered with a task once a
// call has run for [Options.TaskAfter]; see package internal/mcptask. Tasks belong to a token or a pipe, live in
// memory, and end with the server.
//
// # Resources and logs
//
// Files, diffs against snapshots, long outputs and the summary of the workspace are resources. Clients can list them
// page by page, read them, and be notified of changes. A client that sets a log level gets one line for each call.
//
// # Hostile clients
//
// A client can't end the server, whether by garbage, over-long lines, batches or requests with the
// same ID. The memory of the server is bounded: if too many requests are unanswered, the server stops reading.
package mcpserver
