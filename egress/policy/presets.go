package policy

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

//go:embed presets.txt
var presetText string

var presets = sync.OnceValue(func() map[string][]rule {
	all, err := parsePresets(presetText)
	if err != nil {
		panic(err) // a test parses the file too
	}
	return all
})

// PresetNames returns the names of the presets, sorted.
func PresetNames() []string {
	return slices.Sorted(maps.Keys(presets()))
}

// PresetOf returns the preset that allows all requests to a host, "" if there is none.
func PresetOf(host string) string {
	for _, name := range PresetNames() {
		if slices.ContainsFunc(presets()[name], func(r rule) bool { return r.host == host && len(r.access) == 0 }) {
			return name
		}
	}
	return ""
}

func parsePresets(text string) (map[string][]rule, error) {
	all := map[string][]rule{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields)%2 != 0 {
			return nil, fmt.Errorf("preset %q: a path has methods before it", line)
		}
		r, err := parseHostRule(fields[1])
		if err != nil {
			return nil, fmt.Errorf("preset %q: %w", line, err)
		}
		for pair := range slices.Chunk(fields[2:], 2) {
			a, err := parseAccess(pair[0], pair[1])
			if err != nil {
				return nil, fmt.Errorf("preset %q: %w", line, err)
			}
			r.access = append(r.access, a)
		}
		r.text = fields[0]
		all[fields[0]] = append(all[fields[0]], r)
	}
	return all, nil
}
