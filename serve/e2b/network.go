package e2b

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/wisbox/wisbox/egress/policy"
	"github.com/wisbox/wisbox/internal/registry"
)

// everything is how clients write that all addresses are meant.
const everything = "0.0.0.0/0"

type networkBody struct {
	AllowOut      []string        `json:"allowOut"`
	DenyOut       []string        `json:"denyOut"`
	PublicTraffic *bool           `json:"allowPublicTraffic"`
	MaskHost      string          `json:"maskRequestHost"`
	Rules         json.RawMessage `json:"rules"`
	Proxy         json.RawMessage `json:"egressProxy"`
}

// network reads what a client asks of the network into the record.
func (s *Server) network(rec *registry.Record, internet *bool, raw json.RawMessage) error {
	var body networkBody
	if given(raw) {
		if err := json.Unmarshal(raw, &body); err != nil {
			return fail(http.StatusBadRequest, "network has a field of a wrong type")
		}
		rec.Network = raw
	}
	if err := body.offered(); err != nil {
		return err
	}
	if strings.ContainsAny(body.MaskHost, "/ \t\r\n") || !httpguts.ValidHostHeader(strings.ReplaceAll(body.MaskHost, "${PORT}", "1")) {
		return fail(http.StatusBadRequest, "network.maskRequestHost is no host name")
	}
	rec.ClosedPorts, rec.MaskHost = body.PublicTraffic != nil && !*body.PublicTraffic, body.MaskHost
	return s.rules(&rec.Rules, internet, &body)
}

// offered refuses what this server doesn't have.
func (b *networkBody) offered() error {
	if given(b.Rules) && string(b.Rules) != "{}" {
		return fail(http.StatusBadRequest, "network.rules are not offered; leave them out")
	}
	if given(b.Proxy) {
		return fail(http.StatusBadRequest, "network.egressProxy is not offered; leave it out")
	}
	return nil
}

// rules makes egress rules of what a client asks for, where the server allows any.
func (s *Server) rules(rec *registry.Rules, internet *bool, body *networkBody) error {
	for _, list := range [][]string{body.AllowOut, body.DenyOut} {
		for _, host := range list {
			if err := checkHost(host); err != nil {
				return err
			}
		}
	}
	rec.Internet, rec.Allow, rec.Deny = false, nil, nil
	if !s.opts.Internet {
		return nil
	}
	rec.Internet = internet == nil || *internet
	if rec.Internet && !slices.Contains(body.DenyOut, everything) || slices.Contains(body.AllowOut, everything) {
		rec.Allow = append(rec.Allow, "public")
	}
	rec.Allow = append(rec.Allow, without(body.AllowOut, nil)...)
	rec.Deny = without(body.DenyOut, body.AllowOut) // what is allowed wins
	return nil
}

func without(hosts, taken []string) (left []string) {
	for _, host := range hosts {
		if host != everything && !slices.Contains(taken, host) {
			left = append(left, host)
		}
	}
	return left
}

// checkHost takes names alone: rules are about names, whose addresses change.
func checkHost(host string) error {
	if host == everything {
		return nil
	}
	name, _, _ := strings.Cut(host, "/")
	if _, err := netip.ParseAddr(name); err == nil {
		return fail(http.StatusBadRequest, "network: addresses and ranges of them are not offered, but "+everything+"; name hosts")
	}
	// Rules have more forms, which reach this machine and private networks, and presets.
	if !strings.Contains(host, ".") || strings.Contains(host, ":") {
		return fail(http.StatusBadRequest, "network: a host is a name as example.com or *.example.com")
	}
	if _, err := policy.Parse(policy.Settings{Allow: []string{host}}); err != nil {
		return fail(http.StatusBadRequest, "network: a host is wrong: "+strings.TrimPrefix(err.Error(), "allow "))
	}
	return nil
}

// setNetwork replaces the hosts that a sandbox may connect to. Access to its ports
// stays as it is.
func (s *Server) setNetwork(c call, sandbox *registry.Sandbox) (int, any, error) {
	var body struct {
		Internet *bool           `json:"allow_internet_access"`
		AllowOut []string        `json:"allowOut"`
		DenyOut  []string        `json:"denyOut"`
		Rules    json.RawMessage `json:"rules"`
		Proxy    json.RawMessage `json:"egressProxy"`
	}
	if err := decode(c.w, c.r, &body); err != nil {
		return 0, nil, err
	}
	asked := networkBody{AllowOut: body.AllowOut, DenyOut: body.DenyOut, Rules: body.Rules, Proxy: body.Proxy}
	var next registry.Rules
	if err := asked.offered(); err != nil {
		return 0, nil, err
	}
	if err := s.rules(&next, body.Internet, &asked); err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, sandbox.SetNetwork(c.r.Context(), func(rec *registry.Rules) {
		rec.Internet, rec.Allow, rec.Deny = next.Internet, next.Allow, next.Deny
		rec.Network = renewed(rec.Network, &asked)
	})
}

// forkRules are those of a fork: a server that opens nothing forks nothing open.
func (s *Server) forkRules(rec *registry.Rules) {
	if !s.opts.Internet {
		rec.Internet, rec.Allow, rec.Deny = false, nil, nil
	}
}

// renewed is what a client has asked of the network, with other hosts.
func renewed(before json.RawMessage, asked *networkBody) json.RawMessage {
	all := map[string]any{}
	if json.Unmarshal(before, &all) != nil || all == nil {
		all = map[string]any{}
	}
	for name, hosts := range map[string][]string{"allowOut": asked.AllowOut, "denyOut": asked.DenyOut} {
		delete(all, name)
		if len(hosts) > 0 {
			all[name] = hosts
		}
	}
	raw, err := json.Marshal(all)
	if err != nil || len(all) == 0 {
		return nil
	}
	return raw
}
