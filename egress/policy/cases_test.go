package policy

import (
	"encoding/json"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type cases struct {
	Rules, Allowed, Refused, Addresses []string
	BadRules                           []string `json:"bad_rules"`
}

func readCases(t testing.TB) (c cases) {
	t.Helper()
	raw, err := os.ReadFile("../../integration/testdata/cases/egress.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &c))
	require.NotEmpty(t, c.Refused)
	return c
}

// decide splits HOST:PORT as the proxy does.
func decide(p *Policy, target string) bool {
	i := strings.LastIndexByte(target, ':')
	port, err := ParsePort(target[i+1:])
	return i >= 0 && err == nil && p.Decide(target[:i], port).Allowed
}

func TestTheCasesOfThePolicy(t *testing.T) {
	c := readCases(t)
	p := allow(t, c.Rules...)
	for _, target := range c.Allowed {
		assert.True(t, decide(p, target), target)
	}
	for _, target := range c.Refused {
		assert.False(t, decide(p, target), target)
	}
	for _, rule := range c.BadRules {
		_, err := Parse(Settings{Allow: append(slices.Clone(c.Rules), rule)})
		assert.Error(t, err, rule)
	}
	for _, a := range c.Addresses {
		assert.ErrorIs(t, CheckAddress(netip.MustParseAddr(a), Public, nil), ErrAddress, a)
	}
}

func FuzzARuleHasOneFormAndAllowsNoAddress(f *testing.F) {
	c := readCases(f)
	for _, rule := range slices.Concat(c.Rules, c.BadRules, []string{"git:read", "host:80", "private:tcp:a.b:1", "public:1,2"}) {
		f.Add(rule)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(Settings{Allow: []string{text}})
		if err != nil {
			assert.Nil(t, p)
			return
		}
		once := p.Settings().Allow
		again, err := Parse(Settings{Allow: once})
		require.NoError(t, err)
		assert.Equal(t, once, again.Settings().Allow)
		for _, literal := range c.Addresses {
			for _, port := range []uint16{22, 80, 443} {
				assert.False(t, p.Decide(literal, port).Allowed)
			}
		}
	})
}

func FuzzAnAllowedNameIsOneThatTheRulesName(f *testing.F) {
	c := readCases(f)
	p := allow(f, c.Rules...)
	for _, target := range slices.Concat(c.Allowed, c.Refused) {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, host string) {
		d := p.Decide(host, 443)
		if !d.Allowed {
			assert.NotEmpty(t, d.Reason)
			return
		}
		assert.Equal(t, d.Host, strings.ToLower(strings.TrimSuffix(host, ".")))
		assert.True(t, d.Host == "example.com" || d.Host == "xn--bcher-kva.de" || strings.HasSuffix(d.Host, ".example.org"), d.Host)
	})
}

func FuzzAnInjectionHasOneForm(f *testing.F) {
	f.Add("api.example.com:Authorization=Bearer KEY,methods=GET|HEAD,path=/v1/,env=API_KEY")
	f.Add("api.example.com:X-Key=KEY")
	f.Fuzz(func(t *testing.T, text string) {
		i, err := ParseInjection(text)
		if err != nil {
			return
		}
		again, err := ParseInjection(i.String())
		require.NoError(t, err)
		assert.Equal(t, i, again)
	})
}
