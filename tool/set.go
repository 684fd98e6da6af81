package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Set is an ordered collection of tools with distinct names. It never changes, so it may be
// used from many goroutines at once.
type Set struct {
	tools  []Tool // without the hidden ones
	byName map[string]Tool
}

// NewSet returns a set of tools. It panics if two have the same name.
func NewSet(tools ...Tool) *Set {
	s := &Set{byName: make(map[string]Tool, len(tools))}
	for _, t := range tools {
		if _, twice := s.byName[t.Name]; twice {
			panic(fmt.Sprintf("tool: two tools are named %q", t.Name))
		}
		s.byName[t.Name] = t
		if !t.Hidden {
			s.tools = append(s.tools, t)
		}
	}
	return s
}

// Tools returns the tools in order, but for the hidden ones. The caller must not change the slice.
func (s *Set) Tools() []Tool { return s.tools }

// Lookup finds a tool by name.
func (s *Set) Lookup(name string) (Tool, bool) {
	t, ok := s.byName[name]
	return t, ok
}

// Call runs the tool with that name. An unknown name is not_found, with a list of the tools in
// the message. Every error is an *Error.
func (s *Set) Call(ctx context.Context, name string, raw json.RawMessage) (*Result, error) {
	t, ok := s.Lookup(name)
	if !ok {
		return nil, Errorf(NotFound, "unknown tool %q; the tools are %s", name, strings.Join(s.names(), ", ")).In("tool")
	}
	return t.Call(ctx, raw)
}

func (s *Set) names() []string {
	names := make([]string, len(s.tools))
	for i, t := range s.tools {
		names[i] = t.Name
	}
	return names
}
