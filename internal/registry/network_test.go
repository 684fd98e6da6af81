package registry_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/registry/registrytest"
	"github.com/wisbox/wisbox/tool"
)

func opening(hosts ...string) func(*registry.Rules) {
	return func(r *registry.Rules) { r.Internet, r.Allow = len(hosts) > 0, hosts }
}

func same(*registry.Rules) {}

// failing returns an engine whose operations fail if failed is set to their names.
func failing() (e *registrytest.Engine, failed *atomic.Value) {
	failed = &atomic.Value{}
	failed.Store([]string(nil))
	e = &registrytest.Engine{Fail: func(op string) error {
		if slices.Contains(failed.Load().([]string), op) {
			return tool.Errorf(tool.Unavailable, "no Podman")
		}
		return nil
	}}
	return e, failed
}

func allowed(t *testing.T, s *registry.Sandbox) []string {
	t.Helper()
	box, err := s.Box(t.Context())
	require.NoError(t, err)
	allow, _, err := box.(*registrytest.Box).Network(t.Context())
	require.NoError(t, err)
	return allow
}

func TestTheNetworkIsReplacedWhereItCanBe(t *testing.T) {
	e := &registrytest.Engine{NoPause: true} // nor any other optional capability
	r := opened(t, t.TempDir(), e)
	s := create(t, r, registry.Record{Rules: registry.Rules{Allow: []string{"a.com"}}})
	assert.Equal(t, tool.Unsupported, tool.KindOf(s.SetNetwork(t.Context(), opening("b.com"))))
	assert.Equal(t, []string{"a.com"}, s.Record().Allow)
	assert.Nil(t, s.Record().Wanted)
	r.Kill(s)
	assert.Equal(t, tool.NotFound, tool.KindOf(s.SetNetwork(t.Context(), opening("b.com"))))
}

// TestRulesThatTheRecordHasAreSetToo: the sandbox may have other rules.
func TestRulesThatTheRecordHasAreSetToo(t *testing.T) {
	s := create(t, opened(t, t.TempDir(), &registrytest.Engine{}), registry.Record{})
	box, err := s.Box(t.Context())
	require.NoError(t, err)
	require.NoError(t, box.(*registrytest.Box).SetNetwork(t.Context(), []string{"public"}, nil))
	require.NoError(t, s.SetNetwork(t.Context(), opening()))
	assert.Empty(t, allowed(t, s))
}

func TestAClientThatLeavesCutsNoChangeOfTheNetworkOff(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	e := &registrytest.Engine{Fail: func(op string) error {
		if op == "network" {
			leave()
		}
		return nil
	}}
	s := create(t, opened(t, t.TempDir(), e), registry.Record{})
	require.NoError(t, s.SetNetwork(ctx, opening("a.com")))
	assert.Equal(t, []string{"a.com"}, allowed(t, s))
	assert.Equal(t, []string{"a.com"}, s.Record().Allow)
}

func TestAfterAFailureTheRecordSaysWhatTheSandboxHas(t *testing.T) {
	dir := t.TempDir()
	e, failed := failing()
	r := open(t, dir, e)
	s := create(t, r, registry.Record{})
	for _, c := range []struct {
		fails []string
		want  []string
	}{{[]string{"network"}, nil}, {[]string{"networked"}, []string{"a.com"}}} {
		failed.Store(c.fails)
		assert.Equal(t, tool.Unavailable, tool.KindOf(s.SetNetwork(t.Context(), opening("a.com"))))
		rec := s.Record()
		assert.Nil(t, rec.Wanted)
		assert.Equal(t, c.want, rec.Allow)
		assert.Equal(t, c.want != nil, rec.Internet)
		assert.Equal(t, allowed(t, s), rec.Allow)
	}

	failed.Store([]string{"networked", "ask"})
	assert.Error(t, s.SetNetwork(t.Context(), opening("b.com")))
	assert.NotNil(t, s.Known(t.Context()).Wanted, "it isn't known")
	_, err := r.Fork(t.Context(), s, time.Hour, registry.Quota{}, same)
	require.Error(t, err)
	require.NoError(t, r.Close())
	r = opened(t, dir, e)
	s, ok := r.Find(s.ID())
	require.True(t, ok)
	assert.NotNil(t, s.Known(t.Context()).Wanted, "nor by the next server")
	failed.Store([]string(nil))
	rec := s.Known(t.Context())
	assert.Nil(t, rec.Wanted)
	assert.Equal(t, []string{"b.com"}, rec.Allow)
	assert.True(t, rec.Internet)
}

// TestAServerKilledAmidAChangeOfTheNetwork: the next one asks the sandbox.
func TestAServerKilledAmidAChangeOfTheNetwork(t *testing.T) {
	dir := t.TempDir()
	var r *registry.Registry
	var s *registry.Sandbox
	var left []byte // the state left by a server killed after the rules were set
	e := &registrytest.Engine{Fail: func(op string) (err error) {
		if op == "networked" {
			left, err = os.ReadFile(filepath.Join(dir, "sandboxes", s.ID()+".json"))
		}
		return err
	}}
	r = open(t, dir, e)
	s = create(t, r, registry.Record{})
	require.NoError(t, s.SetNetwork(t.Context(), opening("a.com")))
	require.NoError(t, r.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sandboxes", s.ID()+".json"), left, 0o600))
	again, ok := opened(t, dir, e).Find(s.ID())
	require.True(t, ok)
	assert.Equal(t, []string{"a.com"}, again.Known(t.Context()).Allow)
}

// TestRulesThatCantBeKeptAreNotSaid: the record in memory never gets ahead of the file.
func TestRulesThatCantBeKeptAreNotSaid(t *testing.T) {
	dir := t.TempDir()
	e := &registrytest.Engine{Fail: func(op string) error {
		if op == "networked" {
			return os.RemoveAll(filepath.Join(dir, "sandboxes"))
		}
		return nil
	}}
	s := create(t, opened(t, dir, e), registry.Record{})
	require.Error(t, s.SetNetwork(t.Context(), opening("a.com")))
	assert.NotNil(t, s.Record().Wanted)
	assert.Empty(t, s.Record().Allow)
}

func TestAForkHasTheRulesOfItsRecord(t *testing.T) {
	r := opened(t, t.TempDir(), &registrytest.Engine{})
	s := create(t, r, registry.Record{Rules: registry.Rules{Internet: true, Allow: []string{"public"}}})
	for _, edit := range []func(*registry.Rules){same, opening(), opening("b.com")} {
		fork, err := r.Fork(t.Context(), s, time.Hour, registry.Quota{}, edit)
		require.NoError(t, err)
		want := s.Record().Rules
		edit(&want)
		assert.Equal(t, want, fork.Record().Rules)
		assert.Equal(t, want.Allow, allowed(t, fork))
	}
}

func TestAForkWaitsForAChangeOfTheNetwork(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		r := opened(t, dir, &registrytest.Engine{Fail: func(op string) error {
			if op == "networked" {
				<-goOn
			}
			return nil
		}})
		s := create(t, r, registry.Record{Rules: registry.Rules{Internet: true, Allow: []string{"public"}}})
		set := make(chan error, 1)
		go func() { set <- s.SetNetwork(t.Context(), opening()) }()
		synctest.Wait()
		forked := make(chan *registry.Sandbox, 1)
		go func() {
			fork, err := r.Fork(t.Context(), s, time.Hour, registry.Quota{}, same)
			assert.NoError(t, err)
			forked <- fork
		}()
		synctest.Wait()
		close(goOn)
		require.NoError(t, <-set)
		fork := <-forked
		assert.Empty(t, fork.Record().Allow)
		assert.Empty(t, allowed(t, fork))
	})
}

func TestAChangeOfTheNetworkWaitsForAFork(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		r := opened(t, dir, &registrytest.Engine{Fail: func(op string) error {
			if op == "fork" {
				<-goOn
			}
			return nil
		}})
		s := create(t, r, registry.Record{})
		forked, set := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := r.Fork(t.Context(), s, time.Hour, registry.Quota{}, same)
			forked <- err
		}()
		synctest.Wait()
		go func() { set <- s.SetNetwork(t.Context(), opening("a.com")) }()
		synctest.Wait()
		assert.Empty(t, s.Record().Allow)
		assert.Nil(t, s.Record().Wanted)
		close(goOn)
		require.NoError(t, <-forked)
		require.NoError(t, <-set)
		assert.Equal(t, []string{"a.com"}, allowed(t, s))
	})
}
