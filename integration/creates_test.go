package integration

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/podman"
)

// createsOfChild is the variable with the number of containers that a child of these tests creates.
const createsOfChild = "WISBOX_IT_CREATES"

// TestContainersOfEightProcesses: Podman's service, which they share, is never asked to look for a user's IDs. It may
// crash if it does that for two creates at once.
func TestContainersOfEightProcesses(t *testing.T) {
	need(t)
	eightCreate(t, 3, true)
}

// TestHundredsOfContainersOfEightProcesses: what keeps the creates from harming each other doesn't make them wait either.
func TestHundredsOfContainersOfEightProcesses(t *testing.T) {
	hosttest.Slow(t)
	need(t)
	each := 50
	if text := os.Getenv("WISBOX_TEST_CREATES"); text != "" {
		var err error
		each, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	eightCreate(t, 1, true) // so that neither pays for a start of Podman's service
	together := eightCreate(t, each, true)
	inTurn := eightCreate(t, each, false)
	t.Logf("8 x %d creates: %.1f s together, %.1f s one after another: %.2f", each, together.Seconds(), inTurn.Seconds(), together.Seconds()/inTurn.Seconds())
	if each >= 50 { // fewer say nothing about time
		assert.Less(t, together.Seconds(), inTurn.Seconds()*1.1, "with a tenth for what else this machine does")
	}
}

// eightCreate returns how long eight processes take, at the same time or one after another.
func eightCreate(t *testing.T, each int, together bool) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.For(15*time.Minute))
	defer cancel()
	var all sync.WaitGroup
	began := time.Now()
	for range 8 {
		all.Go(func() {
			cmd := exec.CommandContext(ctx, "/proc/self/exe")
			cmd.Env = append(os.Environ(), createsOfChild+"="+strconv.Itoa(each))
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s", bytes.ToValidUTF8(out, nil))
		})
		if !together {
			all.Wait()
		}
	}
	all.Wait()
	return time.Since(began)
}

// createSome creates containers and removes them, without starting one. A create that was repeated counts as failed.
func createSome(count string) (code int) {
	n, err := strconv.Atoi(count)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	var log bytes.Buffer
	b, err := podman.New(context.Background(), &podman.Options{Root: "creates", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer b.Close()
	for i := range n {
		if err := b.PrepareImage(context.Background(), images.Default); err != nil {
			fmt.Fprintf(os.Stderr, "create %d: %v\n", i, err)
			code = 1
		}
	}
	if strings.Contains(log.String(), "created again") {
		code = 1
	}
	if code != 0 {
		fmt.Fprintln(os.Stderr, log.String())
	}
	return code
}
