//go:build linux || darwin

// Package needs_linux_or_macos_see_docs_install has no Go file for other systems. So a build for
// one ends before it compiles anything, with an error that has this name in it, in place
// of hundreds about system calls.
package needs_linux_or_macos_see_docs_install
