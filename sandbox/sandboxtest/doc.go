// Package sandboxtest helps to test users and implementations of package sandbox. [Host] is a
// sandbox.Backend for unit tests that needs no container, and [Suite] is the conformance suite that
// every backend passes.
//
// Host isolates nothing: programs run as the tester, on the tester's machine.
// It is only for tests, never for untrusted programs.
package sandboxtest

// MissingImage is the name of an image that no backend has, for tests of that case.
const MissingImage = "localhost/wisbox-no-such-image:none"
