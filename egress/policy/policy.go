package policy

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Settings are rules as a person writes them.
type Settings struct {
	Allow  []string `json:"allow,omitempty"`
	Deny   []string `json:"deny,omitempty"`
	Inject []string `json:"inject,omitempty"`
	// Record allows the same as the rule public. A [Recorder] lists the hosts used.
	Record bool `json:"record,omitempty"`
}

// Policy decides which hosts are allowed. It is immutable; nil and the zero Policy deny everything.
type Policy struct {
	allow, deny []rule
	inject      []Injection
	settings    Settings
}

// Parse parses all rules. An error names the rule and the wrong part of it; then there is no Policy.
func Parse(s Settings) (*Policy, error) {
	p := &Policy{settings: Settings{Record: s.Record}}
	if max(len(s.Allow), len(s.Deny), len(s.Inject)) > MaxRules {
		return nil, fmt.Errorf("more than %d rules; use *.HOST or public", MaxRules)
	}
	for _, text := range s.Allow {
		rules, err := parseAllow(text)
		if err != nil {
			return nil, fmt.Errorf("allow %q: %w", text, err)
		}
		p.allow = append(p.allow, rules...)
		p.settings.Allow = appendOnce(p.settings.Allow, rules[0].text)
	}
	for _, text := range s.Deny {
		r, err := parseDeny(text)
		if err != nil {
			return nil, fmt.Errorf("deny %q: %w", text, err)
		}
		p.deny = append(p.deny, r)
		p.settings.Deny = appendOnce(p.settings.Deny, r.text)
	}
	if s.Record {
		p.allow = append(p.allow, rule{text: "record", ports: webPorts})
	}
	for _, text := range s.Inject {
		if err := p.addInjection(text); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func appendOnce(all []string, text string) []string {
	if slices.Contains(all, text) {
		return all
	}
	return append(all, text)
}

func (p *Policy) addInjection(text string) error {
	i, err := ParseInjection(text)
	if err != nil {
		return err
	}
	bad := func(problem string) error { return fmt.Errorf("inject %q: %s", text, problem) }
	tls := false
	for _, r := range p.allow {
		if !r.matches(i.Host) {
			continue
		}
		if r.raw {
			return bad("the rule " + r.text + " passes bytes as they are, without reading requests; remove one of the two")
		}
		tls = tls || !slices.Equal(r.ports, []uint16{80})
	}
	if !tls {
		return bad("no rule allows " + i.Host + " over TLS; allow it too")
	}
	for _, other := range p.inject {
		if other.Host == i.Host && strings.EqualFold(other.Header, i.Header) && other.Access.Prefix == i.Access.Prefix {
			return bad("the header already has a secret; give only one")
		}
		if other.Env != "" && other.Env == i.Env && other.Secret != i.Secret {
			return bad("the variable " + i.Env + " already has another placeholder; use another name")
		}
	}
	p.inject = append(p.inject, i)
	p.settings.Inject = append(p.settings.Inject, i.String())
	return nil
}

// Settings returns the rules in canonical form.
func (p *Policy) Settings() Settings {
	if p == nil {
		return Settings{}
	}
	s := p.settings
	s.Allow, s.Deny, s.Inject = slices.Clone(s.Allow), slices.Clone(s.Deny), slices.Clone(s.Inject)
	return s
}

// Empty reports whether nothing is allowed.
func (p *Policy) Empty() bool { return p == nil || len(p.allow) == 0 }

// Injections returns the injections.
func (p *Policy) Injections() []Injection {
	if p == nil {
		return nil
	}
	return slices.Clone(p.inject)
}

// Terminated returns the hosts whose TLS the proxy ends, sorted.
func (p *Policy) Terminated() (hosts []string) {
	if p == nil {
		return nil
	}
	for _, i := range p.inject {
		hosts = append(hosts, i.Host)
	}
	for _, r := range p.allow {
		if len(r.access) > 0 && len(p.access(r.host)) > 0 {
			hosts = append(hosts, r.host)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// Ports returns the ports at which a host is allowed, sorted. The host must be in canonical form.
func (p *Policy) Ports(host string) (ports []uint16) {
	if p == nil {
		return nil
	}
	for _, r := range p.allow {
		if r.matches(host) {
			ports = append(ports, r.ports...)
		}
	}
	ports = slices.DeleteFunc(ports, func(port uint16) bool { return p.denied(host, port) != nil })
	slices.Sort(ports)
	return slices.Compact(ports)
}

// Reach is the set of addresses that a name may have.
type Reach int

// The values of Reach. Private includes Public.
const (
	Public  Reach = iota // public addresses
	Private              // also addresses of private networks
	Host                 // this machine only
)

// Decision is the answer for one host and port.
type Decision struct {
	Host    string // in canonical form
	Port    uint16
	Allowed bool
	Rule    string // the rule that allows or denies it; "" if there is none
	Reason  string // the reason if it is denied
	// Raw passes bytes as they are. Otherwise they must be TLS for Host, or HTTP.
	Raw    bool
	Reach  Reach
	Access []Access
	Inject []Injection

	bounded string // the rule whose restrictions on requests are in Access
}

// Terminated reports whether the proxy ends the TLS of the connection.
func (d Decision) Terminated() bool { return !d.Raw && len(d.Access)+len(d.Inject) > 0 }

// Limited reports whether the method and the path of a request decide what it may do, or which secrets it gets.
func (d Decision) Limited() bool {
	return len(d.Access) > 0 || slices.ContainsFunc(d.Inject, func(i Injection) bool { return !i.Access.anything() })
}

// Permits returns an error if a request isn't permitted.
func (d Decision) Permits(method string, u *url.URL) error {
	if slices.ContainsFunc(d.Inject, func(i Injection) bool { return !i.Access.anyPath() }) {
		if err := normal(u, u.EscapedPath()); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(d.Inject, func(i Injection) bool { return i.Access.Methods != nil }) || slices.ContainsFunc(d.Access, func(a Access) bool { return a.Methods != nil }) {
		if err := plainQuery(u.RawQuery); err != nil {
			return err
		}
	}
	return permits(d.Access, method, u)
}

// InjectionsFor returns the injections for a permitted request.
func (d Decision) InjectionsFor(method, path string) (all []Injection) {
	for _, i := range d.Inject {
		if i.Access.permits(method, path) {
			all = append(all, i)
		}
	}
	return all
}

// Same reports whether two decisions treat a connection in the same way.
func (d Decision) Same(other Decision) bool {
	return d.Allowed == other.Allowed && d.Raw == other.Raw && d.Reach == other.Reach &&
		slices.EqualFunc(d.Access, other.Access, func(a, b Access) bool { return a.String() == b.String() }) &&
		slices.EqualFunc(d.Inject, other.Inject, func(a, b Injection) bool { return a.String() == b.String() })
}

// Decide decides on a host as a program sent it.
func (p *Policy) Decide(host string, port uint16) Decision {
	name, err := RequestName(host)
	if err != nil && !errors.Is(err, errNoDot) {
		return Decision{Host: host, Port: port, Reason: err.Error()}
	}
	d := Decision{Host: name, Port: port}
	if p == nil {
		d.Reason = noRule
		return d
	}
	if r := p.denied(name, port); r != nil {
		d.Rule, d.Reason = r.text, "the rule to deny "+r.text+" forbids it"
		return d
	}
	p.allowing(&d)
	if !d.Allowed {
		d.Reason = p.whyNot(name)
		return d
	}
	if !d.Raw {
		d.Access, d.Inject = p.access(name), p.injections(name)
	}
	if len(d.Access) == 0 {
		d.bounded = ""
	}
	return d
}

const noRule = "no rule allows it"

func (p *Policy) allowing(d *Decision) {
	for _, r := range p.allow {
		if !r.matches(d.Host) || !r.matchesPort(d.Port) {
			continue
		}
		if !d.Allowed || d.Rule == "record" {
			d.Rule = r.text
		}
		if len(r.access) > 0 {
			d.bounded = r.text
		}
		d.Allowed = true
		d.Raw = d.Raw || r.raw
		d.Reach = max(d.Reach, r.reach)
	}
}

func (p *Policy) whyNot(name string) string {
	if ports := p.Ports(name); len(ports) > 0 {
		return "the rules allow only its ports " + joinPorts(ports)
	}
	return noRule
}

func (p *Policy) denied(host string, port uint16) *rule {
	for i := range p.deny {
		if r := &p.deny[i]; r.matches(host) && r.matchesPort(port) {
			return r
		}
	}
	return nil
}

// access returns the restrictions on a host's requests. Only rules for exactly that name count. If one of them has no
// restrictions, or there are none, everything is allowed.
func (p *Policy) access(host string) (all []Access) {
	unbounded := true
	for _, r := range p.allow {
		if r.below || r.host != host || r.raw {
			continue
		}
		if len(r.access) == 0 {
			return p.injected(host)
		}
		unbounded = false
		all = append(all, r.access...)
	}
	injected := p.injected(host)
	if unbounded {
		return injected
	}
	return append(all, injected...)
}

// injected returns the restrictions of injections on a host: none if one of them has none.
func (p *Policy) injected(host string) (all []Access) {
	for _, i := range p.injections(host) {
		if i.Access.anything() {
			return nil
		}
		all = append(all, i.Access)
	}
	return all
}

func (p *Policy) injections(host string) (all []Injection) {
	for _, i := range p.inject {
		if i.Host == host {
			all = append(all, i)
		}
	}
	return all
}
