// Package driver is the Lisp program that package lisp runs in a sandbox, as
// source. Images keep a saved core with it, so that SBCL starts in a moment;
// where they don't, the source itself is loaded at each start.
package driver

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"sync"

	"github.com/wisbox/wisbox/internal/interp"
)

//go:embed *.lisp
var files embed.FS

// Source is the whole program, its parts joined in the order of their names.
var Source = sync.OnceValue(func() string { return interp.Source(files, "*.lisp", "\n") })

// Core is where an image keeps the core that its own SBCL has saved. Its name
// tells this driver from those of other versions: it has the beginning of the
// SHA-256 of Source.
func Core() string {
	sum := sha256.Sum256([]byte(Source()))
	return "/usr/local/lib/wisbox/lisp-" + hex.EncodeToString(sum[:6]) + ".core"
}
