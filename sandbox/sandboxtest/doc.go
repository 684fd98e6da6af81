// Package sandboxtest helps to test what stands on package sandbox and what
// implements it. [Host] is a sandbox.Backend for unit tests that needs no
// container, and [Suite] is the conformance suite that every backend passes.
//
// Host isolates nothing: programs run as the tester, on the tester's machine.
// It is for tests alone, never for a program that is not trusted.
package sandboxtest

// MissingImage is the name of an image that no backend has, for tests of what
// happens then.
const MissingImage = "localhost/wisbox-no-such-image:none"
