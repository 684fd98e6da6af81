package policy

import (
	"cmp"
	"slices"
	"sync"
)

// Recorder collects the rules that a run needed. Its methods may be called from many
// goroutines at once.
type Recorder struct {
	mu   sync.Mutex
	used map[need][]uint16
}

// need is a rule without its ports, or the original rule.
type need struct {
	text  string
	host  string
	raw   bool
	reach Reach
}

const maxNeeds = 4096 // a program may make up names under a wildcard

// Used records a connection that a decision allowed. It returns false if there are too many hosts to record another.
func (r *Recorder) Used(d Decision) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := need{host: d.Host, raw: d.Raw, reach: d.Reach}
	if d.bounded != "" { // a rule with only the host would permit more requests
		n = need{text: d.bounded}
	}
	return r.note(n, d.Port)
}

// Add adds the rules of another Recorder. It skips rules that don't name hosts.
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

// note records a need. The caller holds mu.
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

// Rules returns the smallest set of rules that name hosts and allow the recorded use, sorted by host. The same use
// gives the same rules.
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
