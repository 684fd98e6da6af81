package podman

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containers/podman/v5/pkg/bindings"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.podman.io/storage/pkg/idtools"

	"github.com/wisbox/wisbox/podman/podmantest"
	"github.com/wisbox/wisbox/sandbox"
)

const fakeImage = "localhost/fake:1"

// newFake is a backend on a fake service.
func newFake(t *testing.T) (*Backend, *podmantest.Server) {
	t.Helper()
	server := podmantest.New(t, fakeImage)
	b, err := New(t.Context(), &Options{
		Root: "test", BaseURL: server.URL, RuntimeDir: filepath.Join(t.TempDir(), "r"), StateDir: t.TempDir(),
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), unfiltered: true,
	})
	require.NoError(t, err)
	t.Cleanup(func() { b.Close() })
	return b, server
}

func fakeSpec(t *testing.T) sandbox.Spec {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "wisbox-fake-") // programs can't reach t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return sandbox.Spec{ID: "one", Image: fakeImage, Workspace: dir}
}

func TestCreateRunRemove(t *testing.T) {
	b, server := newFake(t)
	s, err := b.Create(t.Context(), fakeSpec(t))
	require.NoError(t, err)
	var out bytes.Buffer
	result, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"cat"}, Stdin: strings.NewReader("hello"), Stdout: &out})
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusExited, result.Status)
	require.Equal(t, "hello", out.String())
	found, err := b.List(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, "one", found[0].ID)
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, s.Close(t.Context()))
	require.Empty(t, server.Containers())
}

func TestAPassingFaultIsTriedAgain(t *testing.T) {
	t.Parallel()
	locked := podmantest.Fails(500, "database is locked")
	for _, c := range []struct {
		name, method, part string
		fault              http.HandlerFunc
	}{
		{"create", "POST", "/containers/create", locked},
		{"start", "POST", "/start", locked},
		{"image", "GET", "/images/", locked},
		{"exec", "POST", "/exec", locked},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, server := newFake(t)
			server.Fault(c.method, c.part, c.fault, c.fault)
			s, err := b.Create(t.Context(), fakeSpec(t))
			require.NoError(t, err)
			require.NoError(t, s.Close(t.Context()))
		})
	}
}

// broken ends the connection without an answer, as a service does that crashes.
func broken(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func TestACreateWhoseServiceEndedIsRepeatedOnce(t *testing.T) {
	t.Parallel()
	b, server := newFake(t)
	server.Fault("POST", "/containers/create", broken, broken, broken)
	s, err := b.Create(t.Context(), fakeSpec(t))
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
	before := server.Count("POST", "/containers/create")
	server.Fault("POST", "/containers/create", slices.Repeat([]http.HandlerFunc{broken}, 20)...)
	_, err = b.Create(t.Context(), fakeSpec(t))
	require.ErrorContains(t, err, "the connection to podman's service broke")
	require.LessOrEqual(t, server.Count("POST", "/containers/create")-before, 2*maxTries)
	require.Empty(t, server.Containers())
}

func TestACreateSaysWhatEndedItsService(t *testing.T) {
	t.Parallel()
	b, server := newFake(t)
	_, err := b.List(t.Context()) // it connects
	require.NoError(t, err)
	log := filepath.Join(t.TempDir(), "podman.log")
	require.NoError(t, os.WriteFile(log, []byte("panic: an old one\n"), 0o600))
	b.eng.Load().log.open(log)
	crash := func(w http.ResponseWriter, r *http.Request) {
		out, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
		assert.NoError(t, err)
		_, err = out.WriteString("time=x level=warning msg=y\nSIGSEGV: segmentation violation\nPC=0x7f m=9 sigcode=1\n\ngoroutine 0 [idle]:\n")
		assert.NoError(t, errors.Join(err, out.Close()))
		broken(w, r)
	}
	server.Fault("POST", "/containers/create", slices.Repeat([]http.HandlerFunc{crash}, 20)...)
	_, err = b.Create(t.Context(), fakeSpec(t))
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.ErrorContains(t, err, "podman's service ended (create the container): SIGSEGV: segmentation violation; ")
	require.NotContains(t, err.Error(), log)
}

// rootlessInfo is the description of a service of a user who has so many subordinate IDs.
func rootlessInfo(uids, gids int) http.HandlerFunc {
	list := func(n int) string {
		own := `{"container_id": 0, "host_id": 1001, "size": 1}`
		if n > 1 { // two ranges
			own = fmt.Sprintf(`{"container_id": 2, "host_id": 900000, "size": %d}, %s, {"container_id": 1, "host_id": 100000, "size": 1}`, n-1, own)
		}
		return "[" + own + "]"
	}
	return podmantest.Text(fmt.Sprintf(`{"host": {"cgroupVersion": "v2", "kernel": "6.1", "security": {"rootless": true},
		"idMappings": {"uidmap": %s, "gidmap": %s}}, "version": {"Version": "4.3.1"}}`, list(uids), list(gids)))
}

// A service that has to look for the IDs itself may end if it does that for two containers at once.
func TestARootlessCreateNamesAllItsIDs(t *testing.T) {
	t.Parallel()
	b, server := newFake(t)
	server.Fault("GET", "/info", rootlessInfo(65536, 1200))
	s, err := b.Create(t.Context(), fakeSpec(t))
	require.NoError(t, err)
	made := server.Containers()
	require.Len(t, made, 1)
	require.NotContains(t, string(made[0].Spec), "keep-id")
	var spec struct {
		UserNS     struct{ NSMode string }
		IDMappings struct{ UIDMap, GIDMap []idtools.IDMap }
	}
	require.NoError(t, json.Unmarshal(made[0].Spec, &spec))
	require.Equal(t, "private", spec.UserNS.NSMode)
	require.Equal(t, []idtools.IDMap{{ContainerID: 0, HostID: 1, Size: 1000}, {ContainerID: 1000, HostID: 0, Size: 1}, {ContainerID: 1001, HostID: 1001, Size: 64536}}, spec.IDMappings.UIDMap)
	require.Equal(t, []idtools.IDMap{{ContainerID: 0, HostID: 1, Size: 1000}, {ContainerID: 1000, HostID: 0, Size: 1}, {ContainerID: 1001, HostID: 1001, Size: 200}}, spec.IDMappings.GIDMap)
	require.NoError(t, s.Close(t.Context()))
}

func TestAUserWithoutSubordinateIDsIsToldSo(t *testing.T) {
	t.Parallel()
	for _, ids := range [][2]int{{0, 65536}, {65536, 0}, {0, 0}} {
		b, server := newFake(t)
		server.Fault("GET", "/info", rootlessInfo(ids[0], ids[1]))
		_, err := b.Create(t.Context(), fakeSpec(t))
		require.ErrorContains(t, err, "usermod --add-subuids")
		require.Zero(t, server.Count("POST", "/containers/create"))
	}
}

func TestAFaultThatStaysIsTriedThreeTimes(t *testing.T) {
	t.Parallel()
	b, server := newFake(t)
	locked := podmantest.Fails(500, "database is locked")
	server.Fault("POST", "/containers/create", locked, locked, locked, locked)
	_, err := b.Create(t.Context(), fakeSpec(t))
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.Equal(t, 3, server.Count("POST", "/containers/create"))
	require.Empty(t, server.Containers())
}

func TestAFailedCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, method, part string
		answer             http.HandlerFunc
		says               string
	}{
		{"no locks", "POST", "/containers/create", podmantest.Fails(500, "allocating lock for new container: allocation failed; exceeded num_locks (2048)"), "no locks left"},
		{"storage full", "POST", "/containers/create", podmantest.Fails(500, "mkdir /var/lib/x: no space left on device"), "storage is full"},
		{"create garbage", "POST", "/containers/create", podmantest.Text("<html>"), ""},
		{"start fails", "POST", "/start", podmantest.Fails(500, "OCI permission denied"), "could not start the container"},
		{"noexec", "POST", "/start", podmantest.Fails(500, "exec /.wisbox-agent: permission denied"), "refuses to execute the agent"},
		{"files unseen", "POST", "/start", podmantest.Fails(500, "statfs /var/lib/x/agent: no such file or directory"), "does not see this host's files"},
		{"half inspect", "GET", "/json", nil, ""},
		{"ten megabytes", "POST", "/start", podmantest.Fails(500, strings.Repeat("x", 10<<20)), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, server := newFake(t)
			if c.answer != nil {
				server.Fault(c.method, c.part, c.answer)
			} else {
				server.Fault("GET", "wisbox-test-one/json", podmantest.Text(`{"Id": "x", "State": {`))
			}
			_, err := b.Create(t.Context(), fakeSpec(t))
			if c.name == "create garbage" { // the body of a success isn't needed
				require.Empty(t, server.Containers())
			}
			require.ErrorIs(t, err, sandbox.ErrUnavailable)
			require.Contains(t, err.Error(), c.says)
			require.NotContains(t, err.Error(), "/var/lib")
			require.Less(t, len(err.Error()), 500)
			require.Empty(t, server.Containers())
		})
	}
}

func TestAnAnswerThatWasLostLeavesNothing(t *testing.T) {
	t.Parallel()
	b, server := newFake(t)
	server.Fault("POST", "/containers/create", nil)
	server.Fault("POST", "/start", podmantest.Cut, podmantest.Cut, podmantest.Cut)
	_, err := b.Create(t.Context(), fakeSpec(t))
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.Empty(t, server.Containers())
}

func TestACreateThatIsCancelledLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"/images/", "/containers/create", "/start", "/exec", "/json"} {
		t.Run(part, func(t *testing.T) {
			b, server := newFake(t)
			ctx, cancel := context.WithCancel(t.Context())
			method := map[bool]string{true: "GET", false: "POST"}[part == "/images/" || part == "/json"]
			server.Fault(method, part, func(w http.ResponseWriter, r *http.Request) {
				cancel()
				podmantest.Fails(500, "database is locked")(w, r)
			})
			_, err := b.Create(ctx, fakeSpec(t))
			require.Error(t, err)
			require.Empty(t, server.Containers())
		})
	}
}

func TestAMissingImageIsNamedWithWhatToDo(t *testing.T) {
	b, server := newFake(t)
	spec := fakeSpec(t)
	spec.Image = "localhost/other:2"
	_, err := b.Create(t.Context(), spec)
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.Contains(t, err.Error(), "localhost/other:2")
	require.Contains(t, err.Error(), "wisbox image build")
	require.Zero(t, server.Count("POST", "/"))
}

func TestAHungServiceIsUnavailable(t *testing.T) {
	t.Parallel()
	b, server := newFake(t)
	_, err := b.Service(t.Context())
	require.NoError(t, err)
	server.Fault("GET", "/images/", podmantest.Hang, podmantest.Hang)
	server.Fault("GET", "/_ping", podmantest.Hang, podmantest.Hang)
	start := time.Now()
	_, err = b.Create(t.Context(), fakeSpec(t))
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.Contains(t, err.Error(), "does not answer")
	require.Less(t, time.Since(start), 30*time.Second)
}

// TestASlowServiceThatAnswersIsFound: it is asked for its info, and for longer than
// a service has that is silent.
func TestASlowServiceThatAnswersIsFound(t *testing.T) {
	t.Parallel()
	b, server := newFake(t)
	pings := 1 + int((findTimeout+pingAfter)/pingAfter) // one to connect, then one every pingAfter
	server.Fault("GET", "/info", func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for server.Count("GET", "/_ping") < pings {
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
		server.Info(w, r)
	})
	_, err := b.Service(t.Context())
	require.NoError(t, err)
}

func TestOneProcessAsksTheOwnServiceForAll(t *testing.T) {
	_, server := newFake(t)
	s := &service{dir: t.TempDir()}
	ask := func(socket string) error {
		e, err := dial(t.Context(), "own", bindings.Options{URI: server.URL})
		if err != nil {
			return err
		}
		defer e.close()
		err = s.describe(t.Context(), e, filepath.Join(s.dir, socket))
		assert.Equal(t, "fake 1.0", e.info.runtimeName())
		return err
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { assert.NoError(t, ask("sONE")) })
	}
	all.Wait()
	require.Equal(t, 1, server.Count("GET", "/info"))
	require.NoError(t, ask("sTWO"))
	require.Equal(t, 2, server.Count("GET", "/info"), "another service is asked itself")
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, infoFile("sTWO")), []byte(`{"host":`), 0o600))
	require.NoError(t, ask("sTWO"))
	require.Equal(t, 3, server.Count("GET", "/info"), "what is damaged is asked again")
	s.removeSockets()
	left, err := filepath.Glob(filepath.Join(s.dir, "s*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestAServiceThatHangsWhenItIsFoundIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	b, server := newFake(t)
	server.Fault("GET", "/_ping", nil, podmantest.Hang)
	server.Fault("GET", "/info", podmantest.Hang)
	start := time.Now()
	_, err := b.Service(t.Context())
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.Contains(t, err.Error(), "does not answer")
	require.Less(t, time.Since(start), startTimeout)
}

func TestRemoveTriesAgainAndChecks(t *testing.T) {
	t.Parallel()
	busy := podmantest.Fails(500, "removing container: device or resource busy")
	t.Run("busy once", func(t *testing.T) {
		b, server := newFake(t)
		server.Add(podmantest.Container{Name: "wisbox-test-one"})
		server.Fault("DELETE", "/containers/", podmantest.Fails(500, "cannot remove shm: EBUSY"))
		require.NoError(t, b.Remove(t.Context(), "one"))
		require.Empty(t, server.Containers())
	})
	t.Run("says removed but is not", func(t *testing.T) {
		b, server := newFake(t)
		server.Add(podmantest.Container{Name: "wisbox-test-one"})
		server.Fault("DELETE", "/containers/", podmantest.Text("[]"), podmantest.Text("[]"), podmantest.Text("[]"))
		require.ErrorIs(t, b.Remove(t.Context(), "one"), sandbox.ErrUnavailable)
	})
	t.Run("busy for ever", func(t *testing.T) {
		b, server := newFake(t)
		server.Add(podmantest.Container{Name: "wisbox-test-one"})
		server.Fault("DELETE", "/containers/", busy, busy, busy, busy, busy, busy, busy, busy, busy, busy)
		require.ErrorIs(t, b.Remove(t.Context(), "one"), sandbox.ErrUnavailable)
	})
	t.Run("not there", func(t *testing.T) {
		b, _ := newFake(t)
		require.NoError(t, b.Remove(t.Context(), "one"))
	})
}

func made(by string) map[string]string {
	return map[string]string{labelRoot: "test", labelSandbox: "one", labelBoot: bootID(), labelMaker: by}
}

func TestANameThatIsTaken(t *testing.T) {
	ours := map[string]string{labelRoot: "test", labelSandbox: "one", labelBoot: bootID()}
	for _, c := range []struct {
		name string
		have podmantest.Container
		kind error
	}{
		{"stopped is replaced", podmantest.Container{State: "exited", Labels: ours}, nil},
		{"of an earlier boot is replaced", podmantest.Container{State: "running", Labels: map[string]string{labelRoot: "test", labelSandbox: "one", labelBoot: "old"}}, nil},
		{"one that a dead process was making is replaced", podmantest.Container{State: "created", Labels: made("999999999 1")}, nil},
		{"one that is being made is refused", podmantest.Container{State: "created", Labels: made(maker(os.Getpid()))}, sandbox.ErrExists},
		{"running is refused", podmantest.Container{State: "running", Labels: ours}, sandbox.ErrExists},
		{"a stranger is left alone", podmantest.Container{State: "exited"}, sandbox.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, server := newFake(t)
			c.have.Name = "wisbox-test-one"
			server.Add(c.have)
			_, err := b.Create(t.Context(), fakeSpec(t))
			if c.kind == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, c.kind)
			}
			require.Len(t, server.Containers(), 1)
		})
	}
}

func TestOpen(t *testing.T) {
	t.Run("a running one", func(t *testing.T) {
		b, _ := newFake(t)
		spec := fakeSpec(t)
		_, err := b.Create(t.Context(), spec)
		require.NoError(t, err)
		_, err = b.Open(t.Context(), spec)
		require.NoError(t, err)
	})
	t.Run("a missing one", func(t *testing.T) {
		b, _ := newFake(t)
		_, err := b.Open(t.Context(), fakeSpec(t))
		require.ErrorIs(t, err, sandbox.ErrNotFound)
	})
	t.Run("one that is just being removed", func(t *testing.T) {
		b, server := newFake(t)
		server.Fault("GET", "/json", podmantest.Fails(500, "container 0eb7 does not exist in database: no such container"))
		_, err := b.Open(t.Context(), fakeSpec(t))
		require.ErrorIs(t, err, sandbox.ErrNotFound)
	})
	t.Run("a paused one goes on", func(t *testing.T) {
		b, server := newFake(t)
		spec := fakeSpec(t)
		s, err := b.Create(t.Context(), spec)
		require.NoError(t, err)
		require.NoError(t, pauserOf(t, s).Pause(t.Context())) // whoever did so was killed
		_, err = b.Open(t.Context(), spec)
		require.NoError(t, err)
		require.Equal(t, "running", server.Containers()[0].State)
	})
	t.Run("a paused one that can't go on is removed", func(t *testing.T) {
		b, server := newFake(t)
		spec := fakeSpec(t)
		s, err := b.Create(t.Context(), spec)
		require.NoError(t, err)
		require.NoError(t, pauserOf(t, s).Pause(t.Context()))
		server.Fault("POST", "/unpause", podmantest.Fails(500, "freezer is gone"))
		_, err = b.Open(t.Context(), spec)
		require.ErrorIs(t, err, sandbox.ErrNotFound)
		require.Empty(t, server.Containers())
	})
	t.Run("a stopped one is removed", func(t *testing.T) {
		b, server := newFake(t)
		server.Add(podmantest.Container{Name: "wisbox-test-one", State: "exited", Labels: map[string]string{labelRoot: "test", labelSandbox: "one"}})
		_, err := b.Open(t.Context(), fakeSpec(t))
		require.ErrorIs(t, err, sandbox.ErrNotFound)
		require.Empty(t, server.Containers())
	})
}

func TestAServiceThatSeesAnotherWorkspaceIsUnavailable(t *testing.T) {
	b, server := newFake(t)
	server.Workspace = t.TempDir()
	_, err := b.Create(t.Context(), fakeSpec(t))
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.Contains(t, err.Error(), "does not see this host's workspace")
	require.Empty(t, server.Containers())
}

func TestASandboxWithoutASeccompFilterIsRefused(t *testing.T) {
	b, server := newFake(t)
	b.opts.unfiltered = false
	_, err := b.Create(t.Context(), fakeSpec(t))
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.ErrorContains(t, err, "without a seccomp filter")
	require.Empty(t, server.Containers())
}

// gVisor, that the host kills for its memory, may end between a look at it and
// its restart.
func TestAContainerThatDoesNotRestartIsLost(t *testing.T) {
	b, server := newFake(t)
	s, err := b.Create(t.Context(), fakeSpec(t))
	require.NoError(t, err)
	server.Fault("POST", "/restart", podmantest.Fails(500, "container is not running"))
	require.ErrorIs(t, s.(*Sandbox).restart(t.Context()), sandbox.ErrLost)
}

func TestAReplacedWorkspaceIsLost(t *testing.T) {
	b, _ := newFake(t)
	spec := fakeSpec(t)
	spec.Workspace = filepath.Join(spec.Workspace, "w")
	require.NoError(t, os.Mkdir(spec.Workspace, 0o755))
	s, err := b.Create(t.Context(), spec)
	require.NoError(t, err)
	require.NoError(t, os.Rename(spec.Workspace, spec.Workspace+"-old"))
	require.NoError(t, os.Symlink("/", spec.Workspace))
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"echo"}})
	require.ErrorIs(t, err, sandbox.ErrLost)
	_, err = b.Create(t.Context(), spec)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
}

func TestABadSpecIsInvalidBeforeAnyRequest(t *testing.T) {
	b, server := newFake(t)
	for name, change := range map[string]func(*sandbox.Spec){
		"id":        func(s *sandbox.Spec) { s.ID = "A,b=c" },
		"image":     func(s *sandbox.Spec) { s.Image = "" },
		"workspace": func(s *sandbox.Spec) { s.Workspace = "relative" },
		"missing":   func(s *sandbox.Spec) { s.Workspace = "/nowhere/at/all" },
		"cpus":      func(s *sandbox.Spec) { s.Limits.CPUs = -1 },
		"memory":    func(s *sandbox.Spec) { s.Limits.Memory = 1 },
		"pids":      func(s *sandbox.Spec) { s.Limits.PIDs = 1 },
		"tmp":       func(s *sandbox.Spec) { s.Limits.Tmp = -5 },
	} {
		spec := fakeSpec(t)
		change(&spec)
		_, err := b.Create(t.Context(), spec)
		require.ErrorIs(t, err, sandbox.ErrInvalid, name)
	}
	require.Zero(t, server.Count("GET", "/"))
}

func TestConcurrentCreatesAreBounded(t *testing.T) {
	b, server := newFake(t)
	b.creates = make(chan struct{}, 2)
	ctx, cancel := context.WithCancel(t.Context())
	b.creates <- struct{}{}
	b.creates <- struct{}{}
	cancel()
	_, err := b.Create(ctx, fakeSpec(t))
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, server.Count("POST", "/containers/create"))
}

func TestAnAgentsProgramThatWasChangedIsInstalledAgain(t *testing.T) {
	b, _ := newFake(t)
	path, err := b.installAgent()
	require.NoError(t, err)
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, change := range map[string]func() error{
		"gone":     func() error { return os.Remove(path) },
		"replaced": func() error { return errors.Join(os.Remove(path), os.WriteFile(path, []byte("#!/bin/sh\n"), 0o555)) },
		"written":  func() error { return errors.Join(os.Chmod(path, 0o755), os.Truncate(path, 3)) },
	} {
		require.NoError(t, change(), name)
		again, err := b.installAgent()
		require.NoError(t, err)
		require.Equal(t, path, again)
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), name)
	}
}

func TestAStateDirectoryThatIsNoneIsSaidSo(t *testing.T) {
	b, server := newFake(t)
	b.opts.StateDir = filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(b.opts.StateDir, nil, 0o600))
	_, err := b.Create(t.Context(), fakeSpec(t))
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.ErrorContains(t, err, "state directory can't be written")
	require.NotContains(t, err.Error(), b.opts.StateDir)
	require.Empty(t, server.Containers())
}
