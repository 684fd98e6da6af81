// Package conformance runs case files against anything that offers the tools of wisbox: a server on
// a pipe, or a function in this process.
//
// A case is one JSON object: calls, the expectation of each answer, and conditions that must hold
// around them. [Match] implements the language of expectations, [Load] reads a file, [Run] makes a
// subtest of each case. After every case a run checks the canary (a file outside the workspace that
// no answer may show and no call may touch) and the health of the server.
//
// The package is for tests only, and doesn't know how the tools work.
package conformance
