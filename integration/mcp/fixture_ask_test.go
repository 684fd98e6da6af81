package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// questionFixtures adds the tools that ask the client for something: by a request if there is a connection; otherwise
// by a result with the questions, which the client answers with another call.
func questionFixtures(s *sdk.Server) {
	addFixture(s, "test_sampling", `{"type":"object","properties":{"prompt":{"type":"string"}}}`, sample)
	addFixture(s, "test_elicitation", `{"type":"object","properties":{"message":{"type":"string"}}}`, elicit(`{"username":{"type":"string"}}`))
	addFixture(s, "test_elicitation_sep1034_defaults", `{"type":"object"}`, elicit(schemaOfDefaults))
	addFixture(s, "test_elicitation_sep1330_enums", `{"type":"object"}`, elicit(schemaOfEnums))
	for name, do := range map[string]sdk.ToolHandler{
		"elicitation": askFor("user_name"), "sampling": askFor("capital_question"), "list_roots": askFor("client_roots"),
		"multiple_inputs": askFor("user_name", "greeting", "client_roots"), "capabilities": askWhatTheClientCan,
		"request_state": confirmWithState, "tampered_state": confirmWithState, "multi_round": askTwice,
	} {
		addFixture(s, "test_input_required_result_"+name, `{"type":"object"}`, do)
	}
}

func sample(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	var p struct{ Prompt string }
	if err := json.Unmarshal(r.Params.Arguments, &p); err != nil {
		return nil, err
	}
	res, err := r.Session.CreateMessage(ctx, &sdk.CreateMessageParams{
		Messages: []*sdk.SamplingMessage{{Role: "user", Content: &sdk.TextContent{Text: p.Prompt}}}, MaxTokens: 100,
	})
	if err != nil {
		return nil, err
	}
	text, _ := res.Content.(*sdk.TextContent)
	return say("LLM response: " + text.Text), nil
}

func elicit(properties string) sdk.ToolHandler {
	return func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		res, err := r.Session.Elicit(ctx, &sdk.ElicitParams{Message: "for a test", RequestedSchema: json.RawMessage(`{"type":"object","properties":` + properties + `}`)})
		if err != nil {
			return nil, err
		}
		return say(fmt.Sprintf("action=%s, content=%v", res.Action, res.Content)), nil
	}
}

const (
	schemaOfDefaults = `{"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},
		"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}}`
	titled        = `[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]`
	schemaOfEnums = `{"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},"titledSingle":{"type":"string","oneOf":` + titled + `},
		"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
		"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},
		"titledMulti":{"type":"array","items":{"anyOf":` + titled + `}}}`
)

// questions returns the questions with the given names.
func questions(names ...string) sdk.InputRequestMap {
	one := func(property, kind string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{%q:{"type":%q}},"required":[%q]}`, property, kind, property))
	}
	sampling := func(text string) *sdk.CreateMessageParams {
		return &sdk.CreateMessageParams{Messages: []*sdk.SamplingMessage{{Role: "user", Content: &sdk.TextContent{Text: text}}}, MaxTokens: 50}
	}
	all := sdk.InputRequestMap{
		"user_name":        &sdk.ElicitParams{Message: "What is your name?", RequestedSchema: one("name", "string")},
		"user_context":     &sdk.ElicitParams{Message: "What is it about?", RequestedSchema: one("context", "string")},
		"color":            &sdk.ElicitParams{Message: "What is your favorite color?", RequestedSchema: one("color", "string")},
		"confirm":          &sdk.ElicitParams{Message: "Please confirm", RequestedSchema: one("ok", "boolean")},
		"greeting":         sampling("Generate a greeting"),
		"capital_question": sampling("What is the capital of France?"),
		"client_roots":     &sdk.ListRootsParams{},
	}
	asked := sdk.InputRequestMap{}
	for _, name := range names {
		asked[name] = all[name]
	}
	return asked
}

// answered returns the client's answer to a question as text, or "" without an answer of the right form.
func answered(all sdk.InputResponseMap, name string) string {
	switch a := all[name].(type) {
	case *sdk.ElicitResult:
		for _, value := range a.Content {
			if a.Action == "accept" {
				return fmt.Sprint(value)
			}
		}
	case *sdk.CreateMessageWithToolsResult:
		for _, c := range a.Content {
			if text, ok := c.(*sdk.TextContent); ok {
				return text.Text
			}
		}
	case *sdk.ListRootsResult:
		return fmt.Sprintf("%d roots", len(a.Roots))
	}
	return ""
}

// askFor asks until all questions have an answer.
func askFor(names ...string) sdk.ToolHandler {
	return func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		var got []string
		for _, name := range names {
			text := answered(r.Params.InputResponses, name)
			if text == "" {
				return &sdk.CallToolResult{InputRequests: questions(names...), RequestState: "asked"}, nil
			}
			got = append(got, text)
		}
		return say(strings.Join(got, ", ")), nil
	}
}

func askWhatTheClientCan(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	var names []string
	if caps := r.ClientCapabilities(); caps != nil {
		for name, can := range map[string]bool{"user_name": caps.Elicitation != nil, "greeting": caps.Sampling != nil, "client_roots": caps.RootsV2 != nil} {
			if can {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return say("the client can't be asked"), nil
	}
	return askFor(names...)(ctx, r)
}

// confirmWithState sends a state, which must come back unchanged.
func confirmWithState(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	const state = "confirming"
	switch {
	case r.Params.RequestState != "" && r.Params.RequestState != state:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the requestState was changed"}
	case answered(r.Params.InputResponses, "confirm") == "":
		return &sdk.CallToolResult{InputRequests: questions("confirm"), RequestState: state}, nil
	}
	return say("state-ok"), nil
}

// askTwice keeps the first answer in the state while it asks for the second.
func askTwice(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	name, isSecond := strings.CutPrefix(r.Params.RequestState, "name=")
	color, first := answered(r.Params.InputResponses, "color"), answered(r.Params.InputResponses, "user_name")
	switch {
	case isSecond && color != "":
		return say(name + " likes " + color), nil
	case first != "":
		return &sdk.CallToolResult{InputRequests: questions("color"), RequestState: "name=" + first}, nil
	}
	return &sdk.CallToolResult{InputRequests: questions("user_name"), RequestState: "begun"}, nil
}

func askForContext(ctx context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
	about := answered(r.Params.InputResponses, "user_context")
	if about == "" {
		return &sdk.GetPromptResult{InputRequests: questions("user_context")}, nil
	}
	return promptWith(&sdk.TextContent{Text: "Context: " + about})(ctx, r)
}
