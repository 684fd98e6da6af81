package mcpserver

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/wisbox/wisbox/tool"
)

// withSession returns the schema of a tool's parameters with a required "session".
func withSession(in *jsonschema.Schema) *jsonschema.Schema {
	out := *in
	out.Properties = maps.Clone(in.Properties)
	if out.Properties == nil {
		out.Properties = map[string]*jsonschema.Schema{}
	}
	out.Properties["session"] = &jsonschema.Schema{Type: "string", Description: "the handle that session_open gave"}
	out.Required = append([]string{"session"}, in.Required...)
	if in.PropertyOrder != nil {
		out.PropertyOrder = append([]string{"session"}, slices.Clone(in.PropertyOrder)...)
	}
	return &out
}

// splitSession removes the session's handle from a call's arguments. It keeps everything else, even if invalid, for the
// tool to check.
func splitSession(raw json.RawMessage) (handle string, rest json.RawMessage, err error) {
	missing := tool.Errorf(tool.Invalid, "session is missing; it is the handle that session_open gave").In("session")
	dec := json.NewDecoder(bytes.NewReader(raw))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return "", nil, missing
	}
	out, found := []byte("{"), false
	for dec.More() {
		name, value, err := member(dec)
		switch {
		case err != nil:
			return "", nil, tool.Errorf(tool.Invalid, "the arguments must be one JSON object")
		case name == "session" && found:
			return "", nil, tool.Errorf(tool.Invalid, "session is given twice").In("session")
		case name == "session":
			if found = true; json.Unmarshal(value, &handle) != nil || handle == "" {
				return "", nil, tool.Errorf(tool.Invalid, "session must be a string: the handle that session_open gave").In("session")
			}
		default:
			out = appendMember(out, name, value)
		}
	}
	if !found {
		return "", nil, missing
	}
	return handle, append(out, '}'), nil
}

func member(dec *json.Decoder) (name string, value json.RawMessage, err error) {
	key, err := dec.Token()
	if err != nil {
		return "", nil, err
	}
	return key.(string), value, dec.Decode(&value)
}

func appendMember(out []byte, name string, value json.RawMessage) []byte {
	if len(out) > 1 {
		out = append(out, ',')
	}
	quoted, _ := json.Marshal(name) // strings can always be encoded
	return append(append(append(out, quoted...), ':'), value...)
}
