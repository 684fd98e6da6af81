package main

import (
	"archive/zip"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/beside"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

const (
	podSocket = "/ctl/agent.sock"
	podState  = "/state/cache"

	podLook  = time.Second // between checks for the session
	podSweep = 5           // checks of the session between two checks of its time limit

	// podAlone bounds a Pod's wait for its session, since the client may have been killed. The session
	// exists from the first byte that the client sends; until then, the client only packs its mounts.
	podAlone = 10 * time.Minute
)

var podLeave = patience.For(10 * time.Second) // time for the agent to end all programs

// podCommands returns the commands of the first processes in a Pod's containers.
func (a *app) podCommands() []*cobra.Command {
	return []*cobra.Command{a.newPodInitCmd(), a.newPodCmd()}
}

// newPodInitCmd returns the command of the first process in the container for programs.
func (a *app) newPodInitCmd() *cobra.Command {
	defaults := sandbox.Limits{}.WithDefaults()
	var limits beside.Rlimits
	cmd := &cobra.Command{
		Use:    "__init SOCKET",
		Short:  "Become the agent of a Pod's programs",
		Hidden: true,
		Args:   exactArgs("SOCKET"),
		RunE: func(_ *cobra.Command, args []string) error {
			err := beside.Become(args[0], limits)
			return tool.Errorf(tool.Unavailable, "this process can't become the agent of a Pod's programs: %v", err).Because(err)
		},
	}
	cmd.Flags().Int64Var(&limits.NoFile, "nofile", defaults.NoFile, "open files of a process")
	cmd.Flags().Int64Var(&limits.FileSize, "fsize", defaults.FileSize, "bytes of one file")
	return cmd
}

// newPodCmd returns the command of the first process in the container of wisbox.
func (a *app) newPodCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "__pod",
		Short:  "Stay as long as the session of this Pod does",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.pod = true
			return a.runPod(cmd.Context())
		},
	}
}

// runPod returns nil when the session is over; then the container for programs ends too.
func (a *app) runPod(ctx context.Context) error {
	boundMemory()
	go reap(ctx)
	opts := a.options(slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn})))
	m, err := wisbox.NewManager(ctx, opts)
	if err != nil {
		return err
	}
	err = a.untilOver(ctx, m)
	if err = errors.Join(err, m.Close()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, podLeave)
	defer cancel()
	return opts.Backend.(*beside.Backend).Leave(ctx)
}

// untilOver waits until the session is removed, or wasn't created in time. A file records that the session
// existed, so that a restarted process knows.
func (a *app) untilOver(ctx context.Context, m *wisbox.Manager) error {
	tick := time.NewTicker(podLook)
	defer tick.Stop()
	began := time.Now()
	for n := 1; ; n++ {
		over, err := a.isOver(time.Since(began))
		if over || err != nil {
			return err
		}
		if n%podSweep == 0 {
			_, err = m.Prune(ctx, false) // if a removal fails, the next round tries again
		}
		if err != nil {
			fmt.Fprintln(a.err, "wisbox:", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// isOver reports whether the session was removed, or wasn't created in time. waited is how long this
// process has waited.
func (a *app) isOver(waited time.Duration) (bool, error) {
	all, err := os.ReadDir(filepath.Join(a.cache, "sessions"))
	if err != nil || len(all) > 0 {
		return false, err
	}
	had, err := overlay.HadSession(a.cache)
	return had || waited > podAlone, err
}

// reap reaps holders whose parents have ended. This process itself starts no children.
func reap(ctx context.Context) {
	if os.Getpid() != 1 {
		return
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	for {
		for pid := 1; pid > 0; { // one signal may stand for several children
			pid, _ = retry.Interrupted(func() (int, error) { return unix.Wait4(-1, nil, unix.WNOHANG, nil) })
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}

// inPod sets the options for the session of this Pod.
func (a *app) inPod(opts *wisbox.Options) {
	a.cache = cmp.Or(a.cache, os.Getenv("WISBOX_CACHE"), podState)
	dirs := []string{a.cache}
	for name, otherwise := range map[string]string{"XDG_RUNTIME_DIR": "/state/run", "TMPDIR": "/state/tmp"} {
		dir := cmp.Or(os.Getenv(name), otherwise)
		_ = os.Setenv(name, dir)
		dirs = append(dirs, dir)
	}
	for _, dir := range dirs { // the kubelet may have created dir with wider permissions; later uses report errors
		_ = os.MkdirAll(dir, 0o700)
		_ = os.Chmod(dir, 0o700)
	}
	opts.CacheDir, opts.Single = a.cache, true
	opts.Wasm.Prepared = attached
	opts.Backend = beside.New(&beside.Options{Socket: podSocket, StateDir: a.cache, Name: os.Getenv("WISBOX_POD"), Logger: opts.Logger})
}

// attached returns the archive that `wisbox image wrap` appended to this program. Nothing else of an image is trusted
// with the holder's rights.
func attached() (fs.FS, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return zip.OpenReader(path)
}

func (a *app) addPodFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.pod, "pod", false, "use the session of this Pod")
}
