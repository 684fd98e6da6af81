package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cluster"
	_ "github.com/wisbox/wisbox/cluster/kubernetes"
)

// podsTable is made by its name alone: the programs of a Kubernetes on this machine would slow
// down all that the other tables measure.
var podsTable = table{
	name: "pods", title: "What sessions in Pods cost", alone: true,
	about: "Medians (and p99) of sessions on the Kubernetes of `scripts/cluster`, one node on this machine, whose own programs run beside all that is measured. " +
		"Ours go through the whole of `Session.Call`. No session waits in a pool: wisbox keeps no warm Pods yet.",
	parts: []func(*bench, context.Context) error{(*bench).podsOpen, (*bench).podsPrograms, (*bench).podsOutput, (*bench).podsMemory},
}

// The environment of `make bench-pods`, as of the tests that need a Kubernetes.
const (
	kubeconfigVariable = "WISBOX_TEST_KUBECONFIG"
	kubectlContext     = "c" // of scripts/cluster
	podsNamespace      = "default"
	podsAddress        = "kube:" + kubectlContext + "/" + podsNamespace
	podsImage          = "localhost/wisbox-pod:latest"
)

// kubectl is the base of what goes to a Pod.
func kubectl(args ...string) *exec.Cmd {
	return exec.Command("kubectl", append([]string{"--kubeconfig", os.Getenv(kubeconfigVariable), "--namespace", podsNamespace}, args...)...)
}

func runs(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// onPods is a manager whose sessions are Pods.
func (b *bench) onPods(ctx context.Context) (*wisbox.Manager, error) {
	config := os.Getenv(kubeconfigVariable)
	if config == "" {
		return nil, errors.New("the table of Pods needs a Kubernetes, which " + kubeconfigVariable + " names; use: make bench-pods")
	}
	if err := os.Setenv("KUBECONFIG", config); err != nil {
		return nil, err
	}
	return wisbox.NewManager(ctx, &wisbox.Options{Far: podsAddress, CacheDir: b.root + "-pods"})
}

// inPod does something with a session in a Pod, which then ends.
func (b *bench) inPod(ctx context.Context, name string, do func(*wisbox.Session) error) error {
	m, err := b.onPods(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := m.Open(ctx, &wisbox.SessionOptions{Name: name})
	if err != nil {
		return err
	}
	return errors.Join(runTrue(ctx, s), do(s), s.Close(ctx))
}

// podsOpen measures a session up to its first answer, and to its end.
func (b *bench) podsOpen(ctx context.Context) error {
	b.notes = append(b.notes, "load of this machine before: "+loadOfMachine())
	m, err := b.onPods(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	place, err := cluster.New(kubectlContext, podsNamespace, nil)
	if err != nil {
		return err
	}
	defer place.Close()
	var ends samples
	once := func(m *wisbox.Manager) (time.Duration, error) {
		began := time.Now()
		s, err := m.Open(ctx, nil)
		if err != nil {
			return 0, err
		}
		err = runTrue(ctx, s)
		took := time.Since(began)
		began = time.Now()
		err = errors.Join(err, s.Close(ctx))
		ends = append(ends, time.Since(began))
		return took, err
	}
	bare := func(i int) (time.Duration, error) {
		began := time.Now()
		pod, err := place.Create(ctx, cluster.PodOptions{Name: fmt.Sprintf("bare%d", i), Image: podsImage, Pull: cluster.PullNever})
		if err != nil {
			return 0, err
		}
		took := time.Since(began)
		return took, place.Withdraw(ctx, pod)
	}
	const rounds, warmUp = 20, 2
	var ours, floor, here samples
	for i := range rounds + warmUp { // in turn: each waits until nothing is left of the one before
		pod, err := once(m)
		if err != nil {
			return fmt.Errorf("a session in a Pod: %w", err)
		}
		created, err := bare(i)
		if err != nil {
			return fmt.Errorf("a Pod alone: %w", err)
		}
		podEnds := ends
		box, err := once(b.m)
		if ends = podEnds; err != nil {
			return fmt.Errorf("a session on Podman: %w", err)
		}
		if i >= warmUp {
			ours, floor, here = append(ours, pod), append(floor, created), append(here, box)
		}
	}
	b.add(unpromised("open and first program, cold", "the Pod alone: created, both containers run", ours, floor),
		unpromised("the same", "on Podman", ours, here),
		unpromised("the end: nothing is left of the Pod", "open and first program, cold", ends[warmUp:], ours))
	return nil
}

// podsPrograms measures one short program through the relay against Podman's sessions and kubectl.
func (b *bench) podsPrograms(ctx context.Context) error {
	box, err := b.open(ctx, nil)
	if err != nil {
		return err
	}
	defer box.Close(ctx)
	return b.inPod(ctx, "bench", func(s *wisbox.Session) error {
		truth := func() error { return runTrue(ctx, s) }
		ours, here, err := alternate(b.n, truth, func() error { return runTrue(ctx, box) })
		if err != nil {
			return err
		}
		b.add(unpromised("`shell_execute` of `/bin/true` through the relay", "on Podman", ours, here))
		exec := func() error { return runs(kubectl("exec", "wisbox-bench", "-c", "programs", "--", "/bin/true")) }
		ours, base, err := alternate(min(b.n, 40), truth, exec)
		if err != nil {
			return err
		}
		b.add(faster("the same", "`kubectl exec`", ours, base, 10))
		ours, base, err = alternate(min(b.n, 40), func() error { return runs(b.far("exec", "bench", "--", "/bin/true")) }, exec)
		if err != nil {
			return err
		}
		b.add(unpromised("`wisbox exec SESSION -- /bin/true`, the whole process", "`kubectl exec`", ours, base))
		return nil
	})
}

// far is a command of wisbox on the cluster.
func (b *bench) far(args ...string) *exec.Cmd {
	cmd := exec.Command(b.bin, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+os.Getenv(kubeconfigVariable), "WISBOX_REMOTE="+podsAddress, "WISBOX_CACHE="+b.root+"-pods")
	return cmd
}

// podsOutput measures what a program writes.
func (b *bench) podsOutput(ctx context.Context) error {
	const size = 64 << 20
	read := func(cmd *exec.Cmd) error {
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		n, err := io.Copy(io.Discard, out)
		if err := errors.Join(err, cmd.Wait()); err != nil {
			return err
		}
		if n != size {
			return fmt.Errorf("%s wrote %d bytes", cmd.Args[0], n)
		}
		return nil
	}
	program := []string{"head", "-c", fmt.Sprint(size), "/dev/zero"}
	return b.inPod(ctx, "bench-out", func(*wisbox.Session) error {
		ours, base, err := alternate(20, func() error { return read(b.far(append([]string{"exec", "bench-out", "--"}, program...)...)) },
			func() error {
				return read(kubectl(append([]string{"exec", "wisbox-bench-out", "-c", "programs", "--"}, program...)...))
			})
		if err != nil {
			return err
		}
		b.add(unpromised("64 MiB on stdout through `wisbox exec`", "`kubectl exec`", ours, base))
		return nil
	})
}

// podsMemory counts what an idle session takes of its node.
func (b *bench) podsMemory(ctx context.Context) error {
	return b.inPod(ctx, "bench-idle", func(*wisbox.Session) error {
		uid, err := kubectl("get", "pod", "wisbox-bench-idle", "-o", "jsonpath={.metadata.uid}").Output()
		if err != nil {
			return err
		}
		dirs, err := os.ReadDir("/proc")
		if err != nil {
			return err
		}
		var all int64
		var parts []string
		for _, d := range dirs {
			groups, err := os.ReadFile("/proc/" + d.Name() + "/cgroup")
			if err != nil || !strings.Contains(string(groups), "pod"+string(uid)) {
				continue
			}
			name, _ := os.ReadFile("/proc/" + d.Name() + "/comm")
			bytes := rollup("/proc/"+d.Name(), "Pss")
			all += bytes
			parts = append(parts, fmt.Sprintf("%s %.1f", strings.TrimSpace(string(name)), float64(bytes)/(1<<20)))
		}
		if all == 0 {
			return errors.New("no process of the Pod was found: its node isn't this machine")
		}
		b.notes = append(b.notes, fmt.Sprintf("an idle session: %.1f MiB of its node, without the runtime's shim (proportional memory, in MiB: %s)", float64(all)/(1<<20), strings.Join(parts, ", ")),
			"load of this machine after: "+loadOfMachine())
		return nil
	})
}

// loadOfMachine is the average number of processes that want a processor, over 1, 5 and 15 minutes.
func loadOfMachine() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(raw))[:3], " ")
}
