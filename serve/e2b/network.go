package e2b

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/wisbox/wisbox/egress/policy"
	"github.com/wisbox/wisbox/internal/registry"
)

// everything is the clients' notation for all addresses.
const everything = "0.0.0.0/0"

// maxTLSPorts is the maximum of a sandbox's ports that speak TLS.
const maxTLSPorts = 64

type networkBody struct {
	AllowOut      []string        `json:"allowOut"`
	DenyOut       []string        `json:"denyOut"`
	PublicTraffic *bool           `json:"allowPublicTraffic"`
	TLSPorts      []uint16        `json:"httpsPorts"`
	MaskHost      string          `json:"maskRequestHost"`
	Rules         json.RawMessage `json:"rules"`
	Proxy         json.RawMessage `json:"egressProxy"`
}

// network sets the network of the record from a client's request.
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
		return fail(http.StatusBadRequest, "network.maskRequestHost is not a host name")
	}
	if len(body.TLSPorts) > maxTLSPorts || slices.Contains(body.TLSPorts, 0) {
		return fail(http.StatusBadRequest, fmt.Sprintf("network.httpsPorts holds at most %d ports, of 1 to 65535", maxTLSPorts))
	}
	rec.ClosedPorts, rec.TLSPorts, rec.MaskHost = isFalse(body.PublicTraffic), body.TLSPorts, body.MaskHost
	return s.rules(&rec.Rules, internet, &body)
}

// offered refuses fields that this server doesn't support.
func (b *networkBody) offered() error {
	if given(b.Rules) && string(b.Rules) != "{}" {
		return fail(http.StatusBadRequest, "network.rules are not supported; leave them out")
	}
	if given(b.Proxy) {
		return fail(http.StatusBadRequest, "network.egressProxy is not supported; leave it out")
	}
	return nil
}

// rules converts a client's request to egress rules, if the server allows any.
func (s *Server) rules(rec *registry.Rules, internet *bool, body *networkBody) error {
	for _, list := range [][]string{body.AllowOut, body.DenyOut} {
		if len(list) > policy.MaxRules {
			return fail(http.StatusBadRequest, fmt.Sprintf("network: a list has %d hosts; the maximum is %d: use *.HOST", len(list), policy.MaxRules))
		}
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
	rec.Deny = without(body.DenyOut, body.AllowOut) // allowed hosts take precedence
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

// checkHost accepts only names: rules are about names, whose addresses change.
func checkHost(host string) error {
	if host == everything {
		return nil
	}
	name, _, _ := strings.Cut(host, "/")
	if _, err := netip.ParseAddr(name); err == nil {
		return fail(http.StatusBadRequest, "network: addresses and ranges other than "+everything+" are not supported; name hosts")
	}
	// Rules have more forms, which reach this machine and private networks, and presets.
	if !strings.Contains(host, ".") || strings.Contains(host, ":") {
		return fail(http.StatusBadRequest, "network: a host must be a name such as example.com or *.example.com")
	}
	if _, err := policy.Parse(policy.Settings{Allow: []string{host}}); err != nil {
		return fail(http.StatusBadRequest, "network: a host is invalid: "+strings.TrimPrefix(err.Error(), "allow "))
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
	if err := decode(c.r, &body); err != nil {
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

// forkRules sets the rules of a fork: a server without Internet makes no open forks.
func (s *Server) forkRules(rec *registry.Rules) {
	if !s.opts.Internet {
		rec.Internet, rec.Allow, rec.Deny = false, nil, nil
	}
}

// renewed returns a client's network request with its hosts replaced.
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
