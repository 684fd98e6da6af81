package policy

import (
	"cmp"
	"slices"
	"sync"
)

// Recorder collects which rules a run needed. Its methods may be called from many
// goroutines at once.
type Recorder struct {
	mu   sync.Mutex
	used map[need][]uint16
}

// need is a rule without its ports, or one as it was written.
type need struct {
	text  string
	host  string
	raw   bool
	reach Reach
}

const maxNeeds = 4096 // a program may make up names under a wildcard

// Used notes a connection that was made by a decision. It reports false where there
// are too many hosts to note another one.
func (r *Recorder) Used(d Decision) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := need{host: d.Host, raw: d.Raw, reach: d.Reach}
	if d.bounded != "" { // the host alone would permit more requests
		n = need{text: d.bounded}
	}
	return r.note(n, d.Port)
}

// Add takes over what another Recorder's Rules gave. What is no rule of hosts by name is
// left out.
func (r *Recorder) Add(rules []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range rules {
		all, err := parseAllow(text)
		switch {
		case err != nil:
		case len(all[0].access) > 0:
			r.note(need{text: text}, 0)
		case len(all) == 1 && all[0].host != "" && !all[0].below:
			for _, port := range all[0].ports {
				r.note(need{host: all[0].host, raw: all[0].raw, reach: all[0].reach}, port)
			}
		}
	}
}

// note keeps a need. mu is held.
func (r *Recorder) note(n need, port uint16) bool {
	if r.used == nil {
		r.used = map[need][]uint16{}
	}
	if r.used[n] == nil && len(r.used) >= maxNeeds {
		return false
	}
	if !slices.Contains(r.used[n], port) {
		r.used[n] = append(r.used[n], port)
	}
	return true
}

// Rules gives the fewest rules of hosts by name that allow what was used, sorted by
// host. The same use gives the same rules.
func (r *Recorder) Rules() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rules []rule
	for n, ports := range r.used {
		if n.text != "" {
			rules = append(rules, rule{text: n.text})
			continue
		}
		for chunk := range slices.Chunk(sorted(ports), maxPorts) {
			rules = append(rules, rule{host: n.host, raw: n.raw, reach: n.reach, ports: chunk})
		}
	}
	slices.SortFunc(rules, func(a, b rule) int {
		return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(a.host, b.host), cmp.Compare(a.reach, b.reach), boolCompare(a.raw, b.raw), slices.Compare(a.ports, b.ports))
	})
	texts := make([]string, len(rules))
	for i, rule := range rules {
		texts[i] = cmp.Or(rule.text, rule.canonicalText())
		if rule.reach == Host {
			texts[i] = "host:" + joinPorts(rule.ports)
		}
	}
	return texts
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
