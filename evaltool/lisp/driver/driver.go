// Package driver is the Lisp program that package lisp runs in a sandbox, as
// source. Images keep it compiled, so that SBCL starts in a moment; where they
// don't, the source itself is loaded at each start.
package driver

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
)

// Source is the program.
//
//go:embed driver.lisp
var Source string

// Name tells this driver from those of other versions; it is the beginning of
// the SHA-256 of Source.
func Name() string {
	sum := sha256.Sum256([]byte(Source))
	return hex.EncodeToString(sum[:6])
}

// CompiledPath is where an image keeps the driver compiled by its own SBCL.
func CompiledPath() string { return "/usr/local/lib/wisbox/lisp-" + Name() + ".fasl" }
