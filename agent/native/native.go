// Package native has the agent's binaries, compressed, and installs the one for
// this machine: every container gets our own pid 1, regardless of its image. The binaries are committed and built by
// `make agent`; `make lint` builds them again and fails if a byte differs (SHA256SUMS).
//
// It runs nothing: package agent describes the agent, and package agent/resident connects to it.
package native

import (
	"crypto/sha256"
	_ "embed" // the sums
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// ErrArch is the error on a machine without an agent.
var ErrArch = errors.New("there is no agent for this machine's architecture; wisbox runs containers on amd64 and arm64")

//go:embed SHA256SUMS
var sums string

// maxSize is the maximum size of the unpacked agent, in bytes.
const maxSize = 32 << 20

// Sum returns the SHA-256 of this machine's agent in hexadecimal, or "" if there is none.
func Sum() string {
	for line := range strings.Lines(sums) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[1] == "linux-"+runtime.GOARCH && len(packed) > 0 {
			return fields[0]
		}
	}
	return ""
}

// Binary unpacks this machine's agent, a static executable of a few MB.
func Binary() ([]byte, error) {
	want := Sum()
	if want == "" {
		return nil, ErrArch
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxSize))
	if err != nil {
		return nil, fmt.Errorf("unpack the agent: %w", err)
	}
	defer decoder.Close()
	binary, err := decoder.DecodeAll(packed, nil)
	if err != nil {
		return nil, fmt.Errorf("unpack the agent: %w", err)
	}
	if sum := sha256.Sum256(binary); hex.EncodeToString(sum[:]) != want {
		return nil, errors.New("unpack the agent: it is not the one of SHA256SUMS; run `make agent`")
	}
	return binary, nil
}
