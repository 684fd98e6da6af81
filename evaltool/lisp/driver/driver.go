// Package driver has the source of the Lisp program that package lisp runs in a sandbox. Images may
// have a saved core with it, so that SBCL starts quickly; otherwise each start loads the source.
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

// Source returns the whole program, with its parts joined in the order of their names.
var Source = sync.OnceValue(func() string { return interp.Source(files, "*.lisp", "\n") })

// Core returns the path in an image of the core that its own SBCL has saved. Its name
// distinguishes this driver from those of other versions: it has the beginning of the
// SHA-256 of Source.
func Core() string {
	sum := sha256.Sum256([]byte(Source()))
	return "/usr/local/lib/wisbox/lisp-" + hex.EncodeToString(sum[:6]) + ".core"
}
