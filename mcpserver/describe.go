package mcpserver

import (
	"encoding/json"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/tool"
)

// describe returns a tool's entry in a listing.
func describe(t tool.Tool) *mcp.Tool {
	destructive, open := t.Destructive, t.OpenWorld
	return &mcp.Tool{
		Name: t.Name, Title: t.Title, Description: t.Description,
		InputSchema: schemaJSON(t.Input), OutputSchema: schemaJSON(t.Output),
		Annotations: &mcp.ToolAnnotations{
			Title: t.Title, ReadOnlyHint: t.ReadOnly, IdempotentHint: t.Idempotent,
			DestructiveHint: &destructive, OpenWorldHint: &open,
		},
	}
}

// schemaJSON encodes the schema of an object in the form that all known hosts accept, with "properties" even if there
// are none.
func schemaJSON(schema *jsonschema.Schema) json.RawMessage {
	raw, err := json.Marshal(schema)
	if err != nil {
		panic(fmt.Sprintf("mcpserver: marshal a schema: %v", err))
	}
	if len(schema.Properties) > 0 {
		return raw
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		panic(fmt.Sprintf("mcpserver: a schema is not an object: %v", err))
	}
	members["properties"] = json.RawMessage("{}")
	raw, err = json.Marshal(members)
	if err != nil {
		panic(fmt.Sprintf("mcpserver: marshal a schema: %v", err))
	}
	return raw
}
