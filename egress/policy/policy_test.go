package policy

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func allow(t testing.TB, rules ...string) *Policy {
	t.Helper()
	p, err := Parse(Settings{Allow: rules})
	require.NoError(t, err)
	return p
}

func TestTheZeroPolicyDeniesEverything(t *testing.T) {
	for _, p := range []*Policy{nil, {}} {
		assert.True(t, p.Empty())
		d := p.Decide("example.com", 443)
		assert.False(t, d.Allowed)
		assert.Equal(t, "no rule allows it", d.Reason)
		assert.Empty(t, p.Ports("example.com"))
		assert.Empty(t, p.Terminated())
		assert.Empty(t, p.Settings())
	}
}

func TestARuleHasOneForm(t *testing.T) {
	for in, want := range map[string]string{
		"EXAMPLE.com.":                    "example.com",
		"example.com:80,443":              "example.com",
		"example.com:443,80,443":          "example.com",
		"example.com:8443":                "example.com:8443",
		"bücher.de":                       "xn--bcher-kva.de",
		"BÜCHER.DE":                       "xn--bcher-kva.de",
		"*.Example.org":                   "*.example.org",
		"r3---sn-x.googlevideo.com":       "r3---sn-x.googlevideo.com",
		"tcp:example.com:22":              "tcp:example.com:22",
		"tcp:example.com:443,80":          "tcp:example.com:80,443",
		"private:git.corp.example":        "private:git.corp.example",
		"private:tcp:db.corp.example:543": "private:tcp:db.corp.example:543",
		"host:8080,80":                    "host:80,8080",
		"public":                          "public",
		"public:8443":                     "public:8443",
		"git:read":                        "git:read",
		"python":                          "python",
	} {
		p, err := Parse(Settings{Allow: []string{in, in}})
		if assert.NoError(t, err, in) {
			assert.Equal(t, []string{want}, p.Settings().Allow, in)
			again, err := Parse(p.Settings())
			require.NoError(t, err, in)
			assert.Equal(t, p.Settings(), again.Settings(), in)
		}
	}
}

func TestABadRuleSaysWhichPartIsWrong(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "it is empty",
		"*":                            "write public",
		"*.com":                        "everyone can have a name below com",
		"*.co.uk":                      "below co.uk",
		"*.github.io":                  "below github.io",
		"*.kobe.jp":                    "below kobe.jp",
		"*.compute.amazonaws.com":      "below compute.amazonaws.com",
		"*.s3.amazonaws.com":           "below s3.amazonaws.com",
		"*.xn--p1ai":                   "below xn--p1ai",
		"*.рф":                         "below xn--p1ai",
		"*.":                           "the host name is missing",
		"*.*.example.com":              "may only stand in front",
		"a*.example.com":               "may only stand in front",
		"example.*":                    "may only stand in front",
		"com":                          "a dot in it",
		"localhost":                    "a dot in it",
		"app.localhost":                "write host:PORT",
		"host.wisbox:80":               "write host:PORT",
		"1.2.3.4":                      "is an IP address",
		"1.2.3.4:443":                  "is an IP address",
		"*.1.2.3.4":                    "is an IP address",
		"127.1":                        "is an IP address",
		"0x7f.1":                       "is an IP address",
		"2130706433":                   "is an IP address",
		"0":                            "is an IP address",
		"①②⑦.0.0.1":                    "is an IP address",
		"[::1]":                        "IP addresses can't be allowed",
		"::1":                          "IP addresses can't be allowed",
		"tcp:[::1]:22":                 "IP addresses can't be allowed",
		"private:10.0.0.1":             "is an IP address",
		"http://example.com":           "it has a scheme",
		"example.com/x":                `'/' has no place`,
		"a@example.com":                `'@' has no place`,
		"example.com#":                 `'#' has no place`,
		" example.com":                 `' ' has no place`,
		"example.com\n":                `'\n' has no place`,
		"exa\u200bmple.com":            `'\u200b' has no place`,
		"exa\u00admple.com":            `'\u00ad' has no place`,
		"exa\xffmple.com":              "is not a host name",
		"exa_mple.com":                 "not a host name",
		"xn--":                         "not a host name",
		"xn--a.example.com":            "not a host name",
		"-a.example.com":               "hyphen",
		"a-.example.com":               "hyphen",
		"a..example.com":               "not a host name",
		"example.com..":                "nothing between two dots",
		".example.com":                 "not a host name",
		strings.Repeat("a.", 150):      "not a host name",
		strings.Repeat("a", 64) + ".b": "not a host name",
		strings.Repeat("a", 2000):      "longer than",
		"example.com:":                 `"" is not a port`,
		"example.com:0":                `"0" is not a port`,
		"example.com:65536":            `"65536" is not a port`,
		"example.com:http":             `"http" is not a port`,
		"example.com:-1":               `"-1" is not a port`,
		"example.com:+1":               `"+1" is not a port`,
		"example.com:0443":             `"0443" is not a port`,
		"example.com:443-450":          `"443-450" is not a port`,
		"example.com:443,":             `"" is not a port`,
		"example.com:443, 80":          `" 80" is not a port`,
		"example.com,":                 `',' has no place`,
		"example.com:1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17": "too many",
		"example.com:443:80":          "is not a HOST:PORT",
		"tcp:example.com":             "write tcp:HOST:PORT",
		"tcp:*:22":                    "may only stand in front",
		"tcp:private:a.example.com:1": "private: comes first",
		"host":                        "the port is missing",
		"host:":                       "the port is missing",
		"host:http":                   `"http" is not a port`,
		"public:":                     `"" is not a port`,
		"python:read":                 `"read" is not a port`,
		"Python":                      "one of debian, git",
	} {
		p, err := Parse(Settings{Allow: []string{"example.com", in}})
		assert.ErrorContains(t, err, want, in)
		assert.Nil(t, p, in)
		if err != nil && len(in) < 100 {
			assert.ErrorContains(t, err, "allow ", in)
		}
	}
}

func TestADenialWinsOverWhatAllows(t *testing.T) {
	p, err := Parse(Settings{Allow: []string{"public", "evil.example.com"}, Deny: []string{"EVIL.example.com", "*.ru", "example.org:80"}})
	require.NoError(t, err)
	for host, allowed := range map[string]bool{"evil.example.com": false, "a.evil.example.com": true, "a.b.ru": false, "example.com": true} {
		d := p.Decide(host, 443)
		assert.Equal(t, allowed, d.Allowed, host)
		if !allowed {
			assert.Contains(t, d.Reason, "forbids it")
		}
	}
	assert.True(t, p.Decide("example.org", 443).Allowed)
	assert.False(t, p.Decide("example.org", 80).Allowed)
	assert.Equal(t, []uint16{443}, p.Ports("example.org"))
	for _, bad := range []string{"", "*", "1.2.3.4", "example.com:x", "tcp:example.com:22", "http://example.com"} {
		_, err := Parse(Settings{Deny: []string{bad}})
		assert.ErrorContains(t, err, "deny ", bad)
	}
}

func TestPublicCoversNamesOfTheInternetOnly(t *testing.T) {
	p := allow(t, "public")
	assert.True(t, p.Decide("any.example.com", 443).Allowed)
	assert.False(t, p.Decide("any.example.com", 22).Allowed)
	for _, host := range []string{"localhost", "a.localhost", "metadata.google.internal", "printer.local", "intranet", "1.0.0.127.in-addr.arpa", "host.wisbox", "a.onion", "127.0.0.1"} {
		assert.False(t, p.Decide(host, 443).Allowed, host)
	}
	assert.True(t, allow(t, "private:wiki.internal").Decide("wiki.internal", 443).Allowed, "a rule may name it")
}

func TestMoreRulesAllowMore(t *testing.T) {
	p := allow(t, "*.example.com:8443", "api.example.com", "tcp:api.example.com:22", "private:api.example.com:8000", "host:5432")
	assert.Equal(t, []uint16{22, 80, 443, 8000, 8443}, p.Ports("api.example.com"))
	d := p.Decide("api.example.com", 443)
	assert.False(t, d.Raw)
	assert.Equal(t, Public, d.Reach)
	assert.True(t, p.Decide("api.example.com", 22).Raw)
	assert.Equal(t, Private, p.Decide("api.example.com", 8000).Reach)
	d = p.Decide("host.wisbox", 5432)
	assert.True(t, d.Allowed && d.Raw)
	assert.Equal(t, Host, d.Reach)
	d = p.Decide("www.example.com", 443)
	assert.False(t, d.Allowed)
	assert.Equal(t, "the rules allow only its ports 8443", d.Reason)
	assert.False(t, p.Decide("example.com", 8443).Allowed, "a wildcard is for names below")
	assert.False(t, p.Decide("notexample.com", 8443).Allowed)
}

func TestReadPresetsPermitNoPublishing(t *testing.T) {
	p := allow(t, "git:read", "npm:read", "public")
	may := func(host, method, path string) error {
		d := p.Decide(host, 443)
		require.True(t, d.Allowed, host)
		require.True(t, d.Terminated(), host)
		u, err := url.ParseRequestURI(path)
		require.NoError(t, err)
		return d.Permits(method, u)
	}
	assert.NoError(t, may("github.com", "GET", "/a/b/info/refs?service=git-upload-pack"))
	assert.NoError(t, may("github.com", "POST", "/a/b/git-upload-pack"))
	assert.ErrorContains(t, may("github.com", "POST", "/a/b/git-receive-pack"), "permits only")
	for _, odd := range []string{"/a/b/git-receive-pack/../git-upload-pack", "/a/b/git-receive-pack;/git-upload-pack", "/a/b/git-receive-pack%2fgit-upload-pack", "/a/b/git-receive-pack%00/git-upload-pack", "/a//git-upload-pack", `/a\git-upload-pack`} {
		assert.Error(t, may("github.com", "POST", odd), odd)
	}
	assert.NoError(t, may("registry.npmjs.org", "GET", "/lodash"))
	assert.NoError(t, may("registry.npmjs.org", "GET", "/@a%2fb"), "npm writes scoped names so; the path doesn't matter here")
	assert.Error(t, may("registry.npmjs.org", "PUT", "/lodash"))
	assert.False(t, p.Decide("example.com", 443).Terminated())

	both := allow(t, "npm:read", "node")
	assert.False(t, both.Decide("registry.npmjs.org", 443).Terminated(), "the wider rule of that name decides")
	assert.Empty(t, both.Terminated())
	assert.Equal(t, []string{"storage.googleapis.com"}, allow(t, "go").Terminated())
}

func TestAnInjectionBoundsItsHost(t *testing.T) {
	p, err := Parse(Settings{
		Allow: []string{"*.example.com"},
		Inject: []string{
			"API.example.com:Authorization=Bearer KEY,methods=GET|HEAD,path=/v1/,env=API_KEY",
			"api.example.com:X-Other=other,path=/v2",
			"free.example.com:X-Key=KEY",
		},
	})
	require.NoError(t, err)
	assert.Equal(t, "api.example.com:Authorization=Bearer KEY,methods=GET|HEAD,path=/v1/,env=API_KEY", p.Settings().Inject[0])
	assert.Equal(t, []string{"api.example.com", "free.example.com"}, p.Terminated())
	d := p.Decide("api.example.com", 443)
	for request, headers := range map[string]string{
		"GET /v1/x": "Authorization", "POST /v1/x": "-", "GET /v1": "-", "GET /": "-", "GET /v2": "X-Other", "POST /v2/a": "X-Other", "GET /v2a": "-",
		"GET /v1/../v3": "-", "GET /v1/%2e%2e/v3": "-", "GET /v1/%252e/": "-",
	} {
		method, path, _ := strings.Cut(request, " ")
		u, err := url.ParseRequestURI(path)
		require.NoError(t, err)
		if headers == "-" {
			assert.Error(t, d.Permits(method, u), request)
			continue
		}
		assert.NoError(t, d.Permits(method, u), request)
		if all := d.InjectionsFor(method, u.Path); assert.Len(t, all, 1, request) {
			assert.Equal(t, headers, all[0].Header, request)
		}
	}
	d = p.Decide("free.example.com", 443)
	assert.True(t, d.Terminated())
	assert.Len(t, d.InjectionsFor("DELETE", "/x"), 1)
	assert.Equal(t, "wisbox-placeholder-KEY", d.Inject[0].Placeholder())
}

// TestALimitedInjectionStaysWithinItsPath beside one without limits, which leaves the host's other requests permitted.
func TestALimitedInjectionStaysWithinItsPath(t *testing.T) {
	p, err := Parse(Settings{Allow: []string{"api.example.com"}, Inject: []string{"api.example.com:Authorization=KEY,path=/v1/", "api.example.com:X-Free=FREE"}})
	require.NoError(t, err)
	d := p.Decide("api.example.com", 443)
	assert.True(t, d.Limited())
	for path, headers := range map[string]int{
		"/v1/x": 2, "/": 1, "/admin": 1,
		"/v1/%C3%A9": 2, "/v1/a%20b": 2, "/v1/.x": 2,
		"/v1/%c0%ae%c0%ae/admin": -1, "/v1/%e0%80%af": -1, "/v1/.%0a./admin": -1, "/v1/.%7f./admin": -1, "/v1/..%20/admin": -1, "/v1/.../admin": -1,
		"/v1/%ef%bc%8e%ef%bc%8e/admin": -1, "/v1/%e2%80%a5/admin": -1, "/v1/..%ef%bc%8fadmin": -1,
		"/v1/..%e2%88%95admin": -1, "/v1/..%e2%81%84admin": -1, "/v1/.%c2%ad./admin": -1, "/v1/.%e2%80%8b./admin": -1, "/v1/..%e2%88%96admin": -1,
		"/v1/../admin": -1, "/v1/%2e%2e/admin": -1, "/v1/%2f../admin": -1, "/v1/..%5cadmin": -1, "/v1//x": -1, "/v1/x;y": -1,
	} {
		u, err := url.ParseRequestURI(path)
		require.NoError(t, err)
		if headers < 0 {
			assert.Error(t, d.Permits("GET", u), path)
			continue
		}
		assert.NoError(t, d.Permits("GET", u), path)
		assert.Len(t, d.InjectionsFor("GET", u.Path), headers, path)
	}
	for _, inject := range [][]string{{"api.example.com:X-Free=FREE"}, {}} {
		p, err := Parse(Settings{Allow: []string{"api.example.com"}, Inject: inject})
		require.NoError(t, err)
		assert.False(t, p.Decide("api.example.com", 443).Limited())
	}
}

// TestAQueryNamesNoOtherMethod where the method decides: some servers take it from there.
func TestAQueryNamesNoOtherMethod(t *testing.T) {
	for name, inject := range map[string][]string{
		"alone":                    {"api.example.com:Authorization=KEY,methods=GET|POST"},
		"beside one without limit": {"api.example.com:Authorization=KEY,methods=GET|POST", "api.example.com:X-Free=FREE"},
	} {
		p, err := Parse(Settings{Allow: []string{"api.example.com"}, Inject: inject})
		require.NoError(t, err)
		d := p.Decide("api.example.com", 443)
		for query, may := range map[string]bool{
			"": true, "method=x": true, "q=_method": true, "q=100%": true,
			"_method=DELETE": false, "a=b&_METHOD=DELETE": false, "a=b;_method=x": false, "%5fmethod=x": false, "_method": false, "X-HTTP-Method-Override=PUT": false,
		} {
			err := d.Permits("POST", &url.URL{Path: "/v1/x", RawQuery: query})
			assert.Equal(t, may, err == nil, "%s: %s: %v", name, query, err)
		}
	}
	p, err := Parse(Settings{Allow: []string{"api.example.com"}, Inject: []string{"api.example.com:Authorization=KEY,path=/v1/"}})
	require.NoError(t, err)
	assert.NoError(t, p.Decide("api.example.com", 443).Permits("POST", &url.URL{Path: "/v1/x", RawQuery: "_method=DELETE"}), "every method is permitted")
}

func TestABadInjectionSaysWhichPartIsWrong(t *testing.T) {
	for in, want := range map[string]string{
		"":                                      "the header is missing",
		"api.example.com":                       "the header is missing",
		"api.example.com:X-Key":                 "the secret is missing",
		"api.example.com:X-Key=":                "not a name of a secret",
		"api.example.com:X-Key=a/b":             "not a name of a secret",
		"api.example.com:X-Key=Bearer  a":       "not a name of a secret",
		"api.example.com:X-Key=Be:arer a":       "is not a scheme",
		"api.example.com:X Key=a":               "is not a header",
		"api.example.com:=a":                    "is not a header",
		"api.example.com:443:X-Key=a":           "is not a header",
		"api.example.com:Host=a":                "is the connection's",
		"api.example.com:content-length=a":      "is the connection's",
		"api.example.com:Proxy-Anything=a":      "is the connection's",
		"*.example.com:X-Key=a":                 "name it without *",
		"1.2.3.4:X-Key=a":                       "is an IP address",
		"other.example.org:X-Key=a":             "no rule allows other.example.org over TLS",
		"web.example.com:X-Key=a":               "no rule allows web.example.com over TLS",
		"raw.example.com:X-Key=a":               "passes bytes as they are",
		"api.example.com:X-Key=a,methods=":      "has no value",
		"api.example.com:X-Key=a,methods=get":   `method "get"`,
		"api.example.com:X-Key=a,methods=GET|":  `method ""`,
		"api.example.com:X-Key=a,path=v1":       "isn't a plain path",
		"api.example.com:X-Key=a,path=*":        "isn't a plain path",
		"api.example.com:X-Key=a,path=/a/../":   "isn't a plain path",
		"api.example.com:X-Key=a,path=/%2e":     "isn't a plain path",
		"api.example.com:X-Key=a,path=/,path=/": "given twice",
		"api.example.com:X-Key=a,what=1":        `"what" is unknown`,
		"api.example.com:X-Key=a,alone=no":      "write alone=yes",
		"api.example.com:X-Key=a,":              "has no value",
		"api.example.com:X-Key=a,env=1A":        "not a name of a variable",
		"api.example.com:x-one=a":               "already has a secret",
		"api.example.com:X-Two=b,env=ONE":       "already has another placeholder",
	} {
		_, err := Parse(Settings{
			Allow:  []string{"api.example.com", "web.example.com:80", "tcp:raw.example.com:443", "raw.example.com"},
			Inject: []string{"api.example.com:X-One=one,env=ONE", in},
		})
		assert.ErrorContains(t, err, want, in)
		assert.ErrorContains(t, err, "inject ", in)
	}
}

func TestNoAddressOfASpecialPurposeIsReached(t *testing.T) {
	own := []net.Addr{&net.IPNet{IP: net.ParseIP("8.8.4.4"), Mask: net.CIDRMask(24, 32)}, &net.IPNet{IP: net.ParseIP("2600::2"), Mask: net.CIDRMask(64, 128)}}
	for _, a := range []string{"8.8.8.8", "93.184.216.34", "2600::1", "2606:4700::1111"} {
		assert.NoError(t, CheckAddress(netip.MustParseAddr(a), Public, own), a)
		assert.NoError(t, CheckAddress(netip.MustParseAddr(a), Private, own), a)
	}
	for _, a := range []string{
		"10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.7", "198.18.0.1",
		"fc00::1", "fd12::1", "2001:db8::1", "3fff::1",
	} {
		assert.ErrorIs(t, CheckAddress(netip.MustParseAddr(a), Public, own), ErrAddress, a)
		assert.NoError(t, CheckAddress(netip.MustParseAddr(a), Private, own), a)
	}
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.254", "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16",
		"192.0.0.192", "192.0.0.8", "192.88.99.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "8.8.4.4",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "::ffff:8.8.4.4", "::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1",
		"2002:7f00:1::", "2002:808:808::1", "2001::1", "2001:0:4136:e378::1", "fe80::1", "fec0::1", "ff02::1", "ff0e::1", "100::1", "5f00::1",
		"fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "2600::2",
	} {
		for _, reach := range []Reach{Public, Private} {
			assert.ErrorIs(t, CheckAddress(netip.MustParseAddr(a), reach, own), ErrAddress, "%s %d", a, reach)
		}
	}
	assert.ErrorIs(t, CheckAddress(netip.MustParseAddr("2600::1%eth0"), Private, nil), ErrAddress)
	assert.ErrorIs(t, CheckAddress(netip.Addr{}, Private, nil), ErrAddress)
}

func TestARecordingIsTheFewestRulesInOrder(t *testing.T) {
	p, err := Parse(Settings{Record: true, Allow: []string{"tcp:git.example.com:22", "private:db.example.com", "host:5432,8080"}})
	require.NoError(t, err)
	assert.False(t, p.Empty())
	var r Recorder
	assert.Empty(t, r.Rules())
	for range 2 {
		for _, use := range []struct {
			host string
			port uint16
		}{{"www.example.com", 80}, {"WWW.example.com.", 443}, {"git.example.com", 22}, {"git.example.com", 443}, {"db.example.com", 443}, {"host.wisbox", 8080}, {"api.example.com", 80}} {
			d := p.Decide(use.host, use.port)
			require.True(t, d.Allowed, use.host)
			assert.True(t, r.Used(d))
		}
	}
	want := []string{"api.example.com:80", "private:db.example.com:443", "git.example.com:443", "tcp:git.example.com:22", "host:8080", "www.example.com"}
	assert.Equal(t, want, r.Rules())
	locked, err := Parse(Settings{Allow: r.Rules()})
	require.NoError(t, err)
	assert.Equal(t, want, locked.Settings().Allow)
	assert.False(t, locked.Decide("api.example.com", 443).Allowed)
	assert.False(t, locked.Decide("host.wisbox", 5432).Allowed)
}

// TestARecordingAllowsNoMoreThanItsRun: a rule that restricts requests stays the same.
func TestARecordingAllowsNoMoreThanItsRun(t *testing.T) {
	p, err := Parse(Settings{Record: true, Allow: []string{"git:read", "*.example.com"}})
	require.NoError(t, err)
	var r Recorder
	for _, host := range []string{"github.com", "gitlab.com", "a.example.com"} {
		assert.True(t, r.Used(p.Decide(host, 443)))
	}
	assert.True(t, r.Used(p.Decide("github.com", 80)), "the preset has no such port")
	want := []string{"a.example.com:443", "github.com:80", "git:read"}
	assert.Equal(t, want, r.Rules())
	var again Recorder
	again.Add(append(r.Rules(), "public", "python", "*.example.com", "no..rule", ""))
	assert.Equal(t, want, again.Rules(), "rules that no Recorder writes are left out")
	all, err := Parse(Settings{Record: true, Allow: []string{"git:read", "github.com"}})
	require.NoError(t, err)
	var wide Recorder
	assert.True(t, wide.Used(all.Decide("github.com", 443)))
	assert.Equal(t, []string{"github.com:443"}, wide.Rules(), "the host was allowed without bounds")
}

func TestARecordingIsBounded(t *testing.T) {
	p := allow(t, "public")
	var r Recorder
	d := p.Decide("example.com", 443)
	for i := range maxNeeds {
		d.Host = strings.Repeat("a", i%50+1) + "." + strings.Repeat("b", i/50+1) + ".example.com"
		require.True(t, r.Used(d))
	}
	d.Host = "one.more.example.com"
	assert.False(t, r.Used(d))
	assert.Len(t, r.Rules(), maxNeeds)
}

func TestThePresetsAreRules(t *testing.T) {
	all, err := parsePresets(presetText)
	require.NoError(t, err)
	for name := range all {
		p := allow(t, name)
		assert.Equal(t, []string{name}, p.Settings().Allow)
	}
	assert.Equal(t, []string{"debian", "git", "git:read", "go", "node", "npm:read", "python", "rust"}, PresetNames())
	for _, bad := range []string{"x", "x example.com GET", "x *.com", "x example.com get /", "x example.com GET v1"} {
		_, err := parsePresets(bad)
		assert.Error(t, err, bad)
	}
}
