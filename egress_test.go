package wisbox_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// TestRulesNeedASandboxWhoseNetworkCanBeUsed: the sandboxes of these tests have none, and no
// program runs with rules that aren't enforced.
func TestRulesNeedASandboxWhoseNetworkCanBeUsed(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{Allow: []string{"example.com"}}, func(t *testing.T, s *wisbox.Session) {
		_, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"touch", "ran"}})
		require.Equal(t, tool.Unsupported, tool.KindOf(err))
		require.ErrorContains(t, err, "rules for the network")
		require.Empty(t, tree(t, s))
		_, err = s.Call(t.Context(), "write_file", json.RawMessage(`{"file_path":"f","content":"x"}`))
		require.NoError(t, err, "files need no program")
	})
}

// TestRulesAreKeptWithTheSession, including changes at run time, and clones have them.
func TestRulesAreKeptWithTheSession(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		_, err := s.Allow(t.Context(), "example.com", "*.example.org:8443")
		require.NoError(t, err)
		e, err := s.Deny(t.Context(), "example.com")
		require.NoError(t, err)
		require.Equal(t, []string{"*.example.org:8443"}, e.Allow)
		require.Equal(t, []string{"example.com"}, e.Deny)
		for _, rules := range [][]string{{}, {"1.2.3.4"}, {"ok.example.com", "*"}} {
			_, err = s.Allow(t.Context(), rules...)
			require.Equal(t, tool.Invalid, tool.KindOf(err))
		}
		e, err = s.Egress(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"*.example.org:8443"}, e.Allow, "a call with a wrong rule changes nothing")
		in, err := s.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, e.Allow, in.Egress.Allow)

		clone, err := s.Clone(t.Context(), nil)
		require.NoError(t, err)
		defer clone.Close(t.Context())
		require.Equal(t, e.Allow, clone.Options().Allow)
		require.Equal(t, e.Deny, clone.Options().Deny)
		last := logged(t, s)
		require.Equal(t, "egress", last[0].Tool)
		require.Equal(t, "example.com *.example.org:8443", last[0].Args["allow"])
	})
}

// TestAnArchiveOpensNoNetwork: only the person who loads it can.
func TestAnArchiveOpensNoNetwork(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Allow: []string{"example.com"}, EgressVia: "http://user:password@proxy.example.com:3128"})
	require.NoError(t, err)
	var archive bytes.Buffer
	_, err = s.Save(t.Context(), &archive)
	require.NoError(t, err)
	loaded, err := m.Load(t.Context(), &archive, &wisbox.LoadOptions{WithSettings: true})
	require.NoError(t, err)
	require.Empty(t, loaded.Options().Allow)
	require.Empty(t, loaded.Options().EgressVia)
	e, err := s.Egress(t.Context())
	require.NoError(t, err)
	require.NotContains(t, e.Via, "password")
}

// TestAPoolsSandboxesHaveNoRules, because they were made for other sessions.
func TestAPoolsSandboxesHaveNoRules(t *testing.T) {
	m, host := manager(t, wisbox.Options{Pool: wisbox.PoolOptions{Min: 1, Session: wisbox.SessionOptions{Allow: []string{"example.com"}}}})
	require.Eventually(t, func() bool {
		made, err := host.List(t.Context())
		return err == nil && len(made) == 1
	}, 30*time.Second, time.Millisecond)
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Allow: []string{"example.com"}})
	require.NoError(t, err)
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	require.Equal(t, tool.Unsupported, tool.KindOf(err))
	plain, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	_, err = plain.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	require.NoError(t, err)
}

func TestBadRulesAreInvalidAndNothingIsMade(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	for name, opts := range map[string]wisbox.SessionOptions{
		"allow":      {Allow: []string{"http://example.com"}},
		"deny":       {Deny: []string{"1.2.3.4"}},
		"inject":     {Allow: []string{"example.com"}, Inject: []string{"example.com:X-Key=NONE"}},
		"egress_via": {EgressVia: "ftp://example.com"},
		"egress_out": {EgressOut: -1},
	} {
		_, err := m.Open(t.Context(), &opts)
		require.Equal(t, tool.Invalid, tool.KindOf(err), name)
		require.Equal(t, name, tool.AsError(err).Field)
	}
	_, err := m.Open(t.Context(), &wisbox.SessionOptions{Secrets: map[string]wisbox.Secret{"wisbox-ca.pem": {Value: []byte("a long enough value")}}})
	require.ErrorContains(t, err, "another one")
	left, err := m.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestModelsAreToldWhatTheyMayConnectTo: and that they have no network where they have none.
func TestModelsAreToldWhatTheyMayConnectTo(t *testing.T) {
	s := session(t, wisbox.SessionOptions{Allow: []string{"pypi.org"}, Deny: []string{"bad.example.com"}})
	text, err := s.Guidance()
	require.NoError(t, err)
	for _, words := range []string{"pypi.org", "bad.example.com", "network_denied"} {
		assert.Contains(t, text, words)
	}
	assert.NotContains(t, text, "have no network")
	plain := session(t, wisbox.SessionOptions{})
	text, err = plain.Guidance()
	require.NoError(t, err)
	assert.Contains(t, text, "have no network")
	assert.NotContains(t, text, "network_denied")
}

// TestToolsSayWhatIsAllowed if there is a rule, and which services there are.
func TestToolsSayWhatIsAllowed(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	describe := func(o *wisbox.SessionOptions) string {
		set, err := m.Tools(o)
		require.NoError(t, err)
		execute, ok := set.Lookup("shell_execute")
		require.True(t, ok)
		return execute.Description
	}
	require.Contains(t, describe(nil), "There is no network.")
	open := describe(&wisbox.SessionOptions{Allow: []string{"python", "api.example.com"}, Deny: []string{"bad.example.com"}})
	require.NotContains(t, open, "no network")
	require.Contains(t, open, "only to: python api.example.com. Denied: bad.example.com.")
	require.Contains(t, describe(&wisbox.SessionOptions{EgressRecord: true}), "only to: public.")
	services := &wisbox.SessionOptions{Services: []sandbox.Companion{{Name: "db", Image: "localhost/pg", Port: 5432}, {Name: "cache", Image: "localhost/redis"}}}
	require.Contains(t, wisbox.GuidanceOf(services), "reach them at 127.0.0.1: db (localhost/pg, port 5432), cache (localhost/redis).")
}
