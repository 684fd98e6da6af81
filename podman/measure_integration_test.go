//go:build integration

package podman

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// TestPhasesAreMeasured prints medians of what an open costs.
func TestPhasesAreMeasured(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv("WISBOX_MEASURE"))
	if rounds == 0 {
		t.Skip("WISBOX_MEASURE is not a number of rounds")
	}
	h := newHost(t, nil)
	took := map[string][]time.Duration{}
	phase := func(name string, op func() error) {
		start := time.Now()
		require.NoError(t, op())
		took[name] = append(took[name], time.Since(start))
	}
	for range rounds {
		spec := h.spec("m")
		var c container
		var cleanup undo
		phase("look at image", func() (err error) { c, err = h.container(t.Context(), spec); return err })
		c.caps = agentCaps
		c.limits = spec.Limits.WithDefaults()
		phase("create", func() error { return h.make(t.Context(), c, &cleanup) })
		phase("start", func() error { return h.start(t.Context(), c.name) })
		pin, err := pinDir(spec.Workspace)
		require.NoError(t, err)
		s := h.newSandbox(spec, pin)
		phase("exec and handshake", func() error { _, err := s.resident(t.Context()); return err })
		phase("first program", func() error { _, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}}); return err })
		phase("next program", func() error { _, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}}); return err })
		phase("remove", func() error { return s.Close(t.Context()) })
	}
	for name, all := range took {
		slices.Sort(all)
		t.Logf("%-20s median %8s max %8s", name, all[len(all)/2].Round(10*time.Microsecond), all[len(all)-1].Round(10*time.Microsecond))
	}
}

// TestAHundredCreatesAtOnce takes half a minute: WISBOX_MEASURE asks for it.
func TestAHundredCreatesAtOnce(t *testing.T) {
	if os.Getenv("WISBOX_MEASURE") == "" {
		t.Skip("WISBOX_MEASURE is not set")
	}
	h := newHost(t, nil)
	start := time.Now()
	var all sync.WaitGroup
	for i := range 100 {
		spec := h.spec(fmt.Sprintf("h-%d", i))
		all.Go(func() {
			s, err := h.Create(t.Context(), spec)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { s.Detach() })
		})
	}
	all.Wait()
	t.Log("100 creates in", time.Since(start))
	require.Len(t, mustList(t, h), 100)
}
