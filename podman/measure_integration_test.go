//go:build integration

package podman

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/sandbox"
)

// BenchmarkPhases reports the median time of each phase of an open.
func BenchmarkPhases(b *testing.B) {
	h := newHost(b, nil)
	took := map[string][]time.Duration{}
	phase := func(name string, op func() error) {
		start := time.Now()
		require.NoError(b, op())
		took[name] = append(took[name], time.Since(start))
	}
	for b.Loop() {
		spec := h.spec("m")
		var c container
		var cleanup undo.Steps
		phase("look-at-image", func() (err error) { c, err = h.container(b.Context(), spec); return err })
		c.limits = spec.Limits.WithDefaults()
		phase("create", func() error { return h.make(b.Context(), c, &cleanup) })
		phase("start", func() error { return h.start(b.Context(), c.name) })
		pin, err := pinDir(spec.Workspace)
		require.NoError(b, err)
		s := h.newSandbox(spec, pin, c.imageEnv)
		phase("connect", func() error { _, err := s.agent.Conn(b.Context()); return err })
		phase("first-program", func() error { _, err := s.Run(b.Context(), sandbox.Cmd{Argv: []string{"true"}}); return err })
		phase("next-program", func() error { _, err := s.Run(b.Context(), sandbox.Cmd{Argv: []string{"true"}}); return err })
		phase("remove", func() error { return s.Close(b.Context()) })
	}
	for name, all := range took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms-"+name)
	}
}

func BenchmarkAHundredCreatesAtOnce(b *testing.B) {
	h := newHost(b, nil)
	for b.Loop() {
		var all sync.WaitGroup
		for i := range 100 {
			spec := h.spec(fmt.Sprintf("h-%d", i))
			all.Go(func() {
				s, err := h.Create(b.Context(), spec)
				if err != nil {
					b.Error(err)
					return
				}
				if err := s.Close(b.Context()); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
	}
}
