package policy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// rule is a permission or a denial.
type rule struct {
	text   string // in canonical form; of a preset's rules, the preset
	host   string // "" means every public name
	below  bool   // the names below host, not host itself
	ports  []uint16
	raw    bool // any bytes
	reach  Reach
	access []Access // permitted requests; empty means all
}

var webPorts = []uint16{443, 80}

func (r *rule) matches(host string) bool {
	switch {
	case r.below:
		return strings.HasSuffix(host, "."+r.host)
	case r.host == "":
		return !isSpecial(host)
	default:
		return host == r.host
	}
}

func (r *rule) matchesPort(port uint16) bool {
	return len(r.ports) == 0 || slices.Contains(r.ports, port)
}

const (
	// MaxRules is the maximum of rules of each kind.
	MaxRules = 1000

	maxPorts = 16 // of a rule: each needs a listener for each of its names
	maxText  = 1000
)

// parseAllow parses a rule that allows. A preset gives several.
func parseAllow(text string) ([]rule, error) {
	if err := wellFormed(text); err != nil {
		return nil, err
	}
	if preset := presets()[text]; preset != nil {
		return preset, nil
	}
	if head, ports, found := strings.Cut(text, ":"); head == "public" {
		r := rule{ports: webPorts}
		if found {
			var err error
			if r.ports, err = parsePorts(ports); err != nil {
				return nil, err
			}
		}
		r.text = "public" + r.portText()
		return []rule{r}, nil
	}
	if head, ports, _ := strings.Cut(text, ":"); head == "host" {
		return parseHost(ports)
	}
	r, err := parseHostRule(text)
	if errors.Is(err, errNoDot) {
		err = fmt.Errorf("%w; or write public or one of %s", err, strings.Join(PresetNames(), ", "))
	}
	return []rule{r}, err
}

func wellFormed(text string) error {
	switch {
	case text == "":
		return errors.New("it is empty; write a host name")
	case len(text) > maxText:
		return fmt.Errorf("it is longer than %d characters; use shorter rules", maxText)
	case text == "*":
		return errors.New("* would allow everything; to allow every public host write public")
	}
	return nil
}

func parseHost(ports string) ([]rule, error) {
	if ports == "" {
		return nil, errors.New("the port is missing; write host:PORT")
	}
	list, err := parsePorts(ports)
	if err != nil {
		return nil, err
	}
	r := rule{host: ThisMachine, ports: list, raw: true, reach: Host}
	r.text = "host:" + joinPorts(list)
	return []rule{r}, nil
}

// parseHostRule parses [private:][tcp:][*.]HOST[:PORT,…].
func parseHostRule(text string) (rule, error) {
	r := rule{ports: webPorts}
	rest, private := strings.CutPrefix(text, "private:")
	if private {
		r.reach = Private
	}
	rest, r.raw = strings.CutPrefix(rest, "tcp:")
	if strings.HasPrefix(rest, "private:") {
		return rule{}, errors.New("private: comes first; write private:tcp:HOST:PORT")
	}
	ports, err := r.parseTarget(rest)
	if err != nil {
		return rule{}, err
	}
	switch {
	case ports != nil:
		r.ports = ports
	case r.raw:
		return rule{}, errors.New("the port is missing; write tcp:HOST:PORT")
	}
	if r.below {
		if err := tooWide(r.host); err != nil {
			return rule{}, err
		}
	}
	if r.host == ourDomain || strings.HasSuffix(r.host, "."+ourDomain) {
		return rule{}, errors.New("names below wisbox stand for this machine; write host:PORT")
	}
	if r.host == "localhost" || strings.HasSuffix(r.host, ".localhost") {
		return rule{}, errors.New("localhost is the sandbox itself; for a port of this machine write host:PORT")
	}
	r.text = r.canonicalText()
	return r, nil
}

// parseDeny parses [*.]HOST[:PORT,…]. Without ports it denies all ports.
func parseDeny(text string) (rule, error) {
	if err := wellFormed(text); err != nil {
		if text == "*" {
			err = errors.New("* would deny everything; instead, remove the rules that allow hosts")
		}
		return rule{}, err
	}
	var r rule
	ports, err := r.parseTarget(text)
	if err != nil && !errors.Is(err, errNoDot) {
		return rule{}, err
	}
	r.ports = ports
	r.text = r.canonicalText()
	return r, nil
}

// parseTarget parses [*.]HOST[:PORT,…] and returns the ports, nil if there are none.
func (r *rule) parseTarget(text string) ([]uint16, error) {
	if strings.Contains(text, "://") {
		return nil, errors.New("it has a scheme; write only HOST or HOST:PORT")
	}
	if strings.Count(text, ":") > 1 || strings.ContainsAny(text, "[]") {
		return nil, fmt.Errorf("%q is not a HOST:PORT; IP addresses can't be allowed, and tcp: and private: are the prefixes", text)
	}
	host, portText, hasPort := strings.Cut(text, ":")
	host, r.below = strings.CutPrefix(host, "*.")
	name, err := ruleName(host)
	if err != nil && !errors.Is(err, errNoDot) {
		return nil, err
	}
	r.host = name
	if err != nil {
		err = r.noDot(host)
	}
	if !hasPort {
		return nil, err
	}
	ports, portErr := parsePorts(portText)
	if portErr != nil {
		return nil, portErr
	}
	return ports, err
}

func (r *rule) noDot(host string) error {
	if r.below {
		return fmt.Errorf("%w (%w)", tooWide(r.host), errNoDot)
	}
	return fmt.Errorf("%q: %w", host, errNoDot)
}

func parsePorts(text string) ([]uint16, error) {
	var ports []uint16
	for part := range strings.SplitSeq(text, ",") {
		port, err := ParsePort(part)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	if len(ports) > maxPorts {
		return nil, fmt.Errorf("%d ports are too many; the maximum of a rule is %d", len(ports), maxPorts)
	}
	slices.Sort(ports)
	return ports, nil
}

// ParsePort parses a port in decimal, without sign or leading zero.
func ParsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != text {
		return 0, fmt.Errorf("%q is not a port; write a number from 1 to 65535", text)
	}
	return uint16(n), nil
}

// canonicalText returns the rule in canonical form.
func (r *rule) canonicalText() string {
	text := r.host
	if r.below {
		text = "*." + text
	}
	if r.raw {
		text = "tcp:" + text
	}
	if r.reach == Private {
		text = "private:" + text
	}
	return text + r.portText()
}

func (r *rule) portText() string {
	if len(r.ports) == 0 || slices.Equal(sorted(r.ports), sorted(webPorts)) && !r.raw {
		return ""
	}
	return ":" + joinPorts(r.ports)
}

func sorted(ports []uint16) []uint16 { return slices.Sorted(slices.Values(ports)) }

func joinPorts(ports []uint16) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = strconv.Itoa(int(p))
	}
	return strings.Join(texts, ",")
}
