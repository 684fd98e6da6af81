package sandbox

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Variables returns the spec's own variables in the form NAME=VALUE, sorted. env are the other variables of programs,
// to which values may refer with ExpandEnv.
func (s *Spec) Variables(env []string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		value := s.Env[name]
		if s.ExpandEnv {
			value = ExpandEnv(value, env)
		}
		out = append(out, name+"="+value)
	}
	return out
}

var reference = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{containerEnv:([^:}]+)(?::([^}]*))?\}`) })

// ExpandEnv replaces each ${containerEnv:NAME} in a text by the last value in env, and by nothing if there is none;
// ${containerEnv:NAME:default} has another text for that.
func ExpandEnv(text string, env []string) string {
	return reference().ReplaceAllStringFunc(text, func(whole string) string {
		found := reference().FindStringSubmatch(whole)
		for _, kv := range slices.Backward(env) {
			if value, ok := strings.CutPrefix(kv, found[1]+"="); ok {
				return value
			}
		}
		return found[2]
	})
}
