package podman

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"os"

	"github.com/wisbox/wisbox/internal/rundir"
	"github.com/wisbox/wisbox/sandbox"
)

//go:generate sh -c "go run ./internal/mkseccomp /usr/share/containers/seccomp.json >seccomp.json"

// seccompProfile is the system calls that any process of a sandbox may make.
//
//go:embed seccomp.json
var seccompProfile []byte

// hostFiles are the small files that a container is made with; the service reads
// them by path.
type hostFiles struct {
	seccomp string // the profile
	empty   string // mounted over resolv.conf
}

// writeHostFiles puts them into the runtime directory, by content: a changed
// profile never changes under a container that exists.
func (b *Backend) writeHostFiles() (hostFiles, error) {
	var out hostFiles
	profile := seccompProfile
	if b.opts.Seccomp != "" {
		data, err := os.ReadFile(b.opts.Seccomp)
		if err != nil {
			return out, fail(sandbox.ErrInvalid, err, "the seccomp profile that was given can't be read")
		}
		profile = data
	}
	err := rundir.Private(b.opts.RuntimeDir)
	if err == nil {
		sum := sha256.Sum256(profile)
		out.seccomp, err = keepFile(b.opts.RuntimeDir, "seccomp-"+hex.EncodeToString(sum[:6])+".json", profile, 0o644)
	}
	if err == nil {
		out.empty, err = keepFile(b.opts.RuntimeDir, "empty", nil, 0o644)
	}
	if err != nil {
		return out, fail(sandbox.ErrUnavailable, err, "the runtime directory can't be written")
	}
	return out, nil
}
