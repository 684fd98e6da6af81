package snapshot

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The test binary is its own victim: with this variable it works on a directory
// in a loop until it is killed.
const victimVariable = "WISBOX_SNAPSHOT_VICTIM"

func TestMain(m *testing.M) {
	if job := os.Getenv(victimVariable); job != "" {
		if err := victim(strings.Split(job, "|")); err != nil {
			fmt.Fprintln(os.Stderr, err, causeOf(err))
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// victim repeatedly changes the workspace, takes snapshots and restores them, and announces each step.
func victim(args []string) error {
	dir, id := args[0], args[1]
	s, err := openAt(dir)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if err := scribble(filepath.Join(dir, "ws"), i); err != nil {
			return err
		}
		fmt.Println("create")
		info, err := s.Create(context.Background(), &CreateOptions{Label: "victim"})
		if err != nil {
			return err
		}
		fmt.Println("restore")
		if _, err := s.Restore(context.Background(), id, nil); err != nil {
			return err
		}
		fmt.Println("remove")
		if err := s.Remove(context.Background(), info.ID); err != nil {
			return err
		}
	}
}

// openAt opens the store of a bench in another process.
func openAt(dir string) (*Store, error) {
	opts := &Options{Fsync: true, Lock: func(context.Context) (func(), error) { return func() {}, nil }}
	for name, root := range map[string]**os.Root{"ws": &opts.Workspace, "tmp": &opts.Tmp, "store": &opts.Store} {
		r, err := os.OpenRoot(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		*root = r
	}
	return New(opts)
}

func scribble(ws string, i int) error {
	for j := range 30 {
		name := filepath.Join(ws, "d"+strconv.Itoa(j%7), "f"+strconv.Itoa(j))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, fmt.Appendf(nil, "%d %d %s", i, j, strings.Repeat("x", 2000)), 0o600); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(ws, "keep"))
}

// kills returns the number of random points to try; a full run tries 200.
func kills() int {
	if n, err := strconv.Atoi(os.Getenv("WISBOX_KILLS")); err == nil {
		return n
	}
	return 12
}

func TestAProcessKilledAnywhereLeavesAValidStore(t *testing.T) {
	b := newBench(t)
	for j := range 40 {
		b.write(fmt.Sprintf("keep/%d/f", j), strings.Repeat(strconv.Itoa(j), 500+j))
	}
	require.NoError(t, os.Symlink("keep/1/f", filepath.Join(b.ws, "link")))
	want := tree(t, b.ws)
	id := b.create().ID
	require.NoError(t, b.store.Close())
	recovered := 0
	for range kills() {
		kill(t, b.dir, id)
		if checkAfterKill(t, b, id, want) {
			recovered++
		}
	}
	t.Logf("%d of %d kills fell into a restore", recovered, kills())
}

// kill kills the victim some time after it has begun one of its steps.
func kill(t *testing.T, dir, id string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimVariable+"="+dir+"|"+id)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	step := []string{"create", "restore", "restore", "remove"}[rand.IntN(4)]
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != step; {
	}
	time.AfterFunc(time.Duration(rand.IntN(60_000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
	_, _ = io.Copy(io.Discard, out)
	assert.ErrorContains(t, cmd.Wait(), "killed")
}

func checkAfterKill(t *testing.T, b *bench, id string, want map[string]string) (recovered bool) {
	t.Helper()
	ctx := context.Background()
	s, err := New(options(t, b.dir))
	require.NoError(t, err)
	defer s.Close()
	recovered, err = s.Recover(ctx)
	require.NoError(t, err, causeOf(err))
	if recovered {
		require.Equal(t, want, tree(t, b.ws), "a restore that was begun is finished")
	}
	damaged, err := s.Verify(ctx)
	require.NoError(t, err)
	require.Empty(t, damaged)
	list, err := s.List(ctx)
	require.NoError(t, err)
	for _, info := range list {
		_, err := s.Restore(ctx, info.ID, nil)
		require.NoError(t, err, causeOf(err))
		if info.ID != id {
			require.NoError(t, s.Remove(ctx, info.ID))
		}
	}
	_, err = s.Restore(ctx, id, nil)
	require.NoError(t, err)
	require.Equal(t, want, tree(t, b.ws))
	require.Empty(t, leftovers(t, b.dir))
	return recovered
}
