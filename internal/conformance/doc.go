// Package conformance runs case files against anything that offers the tools of
// wisbox: a server on a pipe, or a function in this process.
//
// A case is one JSON object: calls, what each answer must be, and what must hold
// around them. [Match] is the language of expectations, [Load] reads a file,
// [Run] makes one subtest a case. After every case a run looks for the canary (a
// file outside the workspace that no answer may show and no call may touch) and
// for the health of the server.
//
// It is for tests only, and knows nothing of how a tool works.
package conformance
