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

	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/podman"
)

// createsOfChild is the variable with the number of containers that a child of these tests creates.
const createsOfChild = "WISBOX_IT_CREATES"

// TestContainersOfEightProcesses: Podman's service, which they share, is never asked to look for a user's IDs. It may
// crash if it does that for two creates at once.
func TestContainersOfEightProcesses(t *testing.T) {
	eightCreate(t, 3)
}

func TestHundredsOfContainersOfEightProcesses(t *testing.T) {
	hosttest.Slow(t)
	eightCreate(t, 50)
}

func eightCreate(t *testing.T, each int) {
	t.Helper()
	need(t)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			cmd := exec.CommandContext(ctx, "/proc/self/exe")
			cmd.Env = append(os.Environ(), createsOfChild+"="+strconv.Itoa(each))
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s", bytes.ToValidUTF8(out, nil))
		})
	}
	all.Wait()
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
