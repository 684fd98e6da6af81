package agent_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// hesitant is a reader that is at times slower than the program, at times faster.
type hesitant struct{ hash.Hash }

func (h hesitant) Write(p []byte) (int, error) {
	for range rand.IntN(200) {
		runtime.Gosched()
	}
	return h.Hash.Write(p)
}

// TestLargeOutputsAreWhole: the kernel moves large pieces of a pipe to the host, smaller ones
// are copied, and frames of other programs come between.
func TestLargeOutputsAreWhole(t *testing.T) {
	f := start(t)
	const lines = 1_500_000
	want := sha256.New()
	for i := range lines {
		fmt.Fprintln(want, i)
	}
	sum := hex.EncodeToString(want.Sum(nil))
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			out, errs := sha256.New(), sha256.New()
			res, err := f.Run(context.Background(), sandbox.Cmd{
				Argv: []string{"bash", "-c", "seq 0 $0 | tee /dev/stderr", fmt.Sprint(lines - 1)}, Stdout: hesitant{out}, Stderr: hesitant{errs}, Timeout: time.Minute,
			})
			if assert.NoError(t, err) {
				assert.Equal(t, sum, hex.EncodeToString(out.Sum(nil)))
				assert.Equal(t, sum, hex.EncodeToString(errs.Sum(nil)))
				assert.Equal(t, res.Stdout.Bytes, res.Stderr.Bytes)
			}
		})
	}
	all.Wait()
}

// TestAProgramThatReadsItsOwnOutput gets zeros in its place at most, and harms nobody else.
func TestAProgramThatReadsItsOwnOutput(t *testing.T) {
	f := start(t)
	got := f.sh(t, `for i in 1 2 3; do timeout 1 cat </proc/self/fd/1 >/dev/null & done; head -c 64M /dev/zero | tr '\0' x; wait; exit 0`)
	require.Equal(t, 0, got.ExitCode, got.err)
	assert.Empty(t, strings.Trim(got.out, "x\x00"))
	assert.Less(t, len(got.out), 64<<20, "it took some of it")
	require.NoError(t, f.Ping(t.Context()))
	require.Equal(t, "other\n", f.sh(t, "echo other").out)
}
