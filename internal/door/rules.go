package door

import (
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/wisbox/wisbox/egress"
	"github.com/wisbox/wisbox/egress/policy"
)

// Rules define the connections that a session's programs may make. The zero Rules mean no network.
type Rules struct {
	policy.Settings

	Via string `json:"via,omitempty"` // the URL of a proxy for all connections
	// Out is the maximum of bytes that programs may send in total; 0 means the default of
	// [egress.Bounds].
	Out int64 `json:"out_bytes,omitempty"`
}

// Bounds of Out, in bytes.
const (
	minOut = 1 << 20
	maxOut = 1 << 40
)

// Opens reports whether anything is allowed.
func (r Rules) Opens() bool { return len(r.Allow) > 0 || r.Record }

// RuleError names the invalid rule and its part. Its text begins with the name of the setting.
type RuleError struct{ error }

// Parse parses the rules. Every error is a *RuleError.
func (r Rules) Parse() (*policy.Policy, *url.URL, error) {
	p, via, err := r.parse()
	if err != nil {
		return nil, nil, &RuleError{err}
	}
	return p, via, nil
}

func (r Rules) parse() (*policy.Policy, *url.URL, error) {
	if r.Out != 0 && (r.Out < minOut || r.Out > maxOut) {
		return nil, nil, fmt.Errorf("egress_out is %d bytes; it must be from 1 MiB to 1 TiB", r.Out)
	}
	p, err := policy.Parse(r.Settings)
	if err != nil || r.Via == "" {
		return p, nil, err
	}
	via, err := url.Parse(r.Via)
	if err != nil { // its text has the URL, which may contain a password
		return nil, nil, errors.New("egress_via can't be read as a URL; write http://HOST:PORT")
	}
	probe, err := egress.New(&egress.Options{Via: via})
	if err != nil {
		return nil, nil, fmt.Errorf("egress_via %q: it is not a proxy's address; write http://HOST:PORT", via.Redacted())
	}
	return p, via, probe.Close()
}

// Secrets returns the names of the secrets that injections use.
func (r Rules) Secrets() (names []string) {
	for _, text := range r.Inject {
		if i, err := policy.ParseInjection(text); err == nil {
			names = append(names, i.Secret)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// With returns the rules with others added. A rule that is now allowed is no longer denied
// by the same text, and the other way around.
func (r Rules) With(allow, deny []string) Rules {
	next := r
	next.Allow = added(without(r.Allow, deny), allow)
	next.Deny = added(without(r.Deny, allow), deny)
	return next
}

func added(to, more []string) []string {
	for _, text := range more {
		if !slices.Contains(to, text) {
			to = append(to, text)
		}
	}
	return to
}

func without(all, gone []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(text string) bool { return slices.Contains(gone, text) })
}

// Shown returns the rules without a password.
func (r Rules) Shown() Rules {
	if via, err := url.Parse(r.Via); err == nil {
		r.Via = via.Redacted()
	}
	return r
}
