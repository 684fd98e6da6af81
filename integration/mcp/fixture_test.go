package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// The conformance suite tests a server by tools, resources and prompts whose names and answers it defines: it calls
// them to check the server's handling of each kind of content, notification and question. This file and the three
// others have them, only in builds of tests.

// fixtures adds them all to a server of the SDK.
func fixtures(s *sdk.Server) {
	for name, content := range contents {
		answerWith(s, name, content...)
	}
	for name, do := range map[string]sdk.ToolHandler{
		"test_tool_with_logging": logThrice, "test_logging_tool": logThrice, "test_tool_with_progress": progressThrice,
		"test_error_handling": failAlways, "test_missing_capability": needSampling, "test_reconnection": dropStream,
		"test_trigger_tool_change": func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			answerWith(s, "passing_tool")
			return say("the list of tools has changed"), nil
		},
		"test_trigger_prompt_change": func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			s.AddPrompt(&sdk.Prompt{Name: "passing_prompt", Description: "comes and goes"}, promptWith())
			return say("the list of prompts has changed"), nil
		},
	} {
		addFixture(s, name, `{"type":"object"}`, do)
	}
	addFixture(s, "json_schema_2020_12_tool", richSchema, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return say(string(r.Params.Arguments)), nil
	})
	addFixture(s, "test_x_mcp_header", `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"level":{"type":"integer"}}}`,
		func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return say(string(r.Params.Arguments)), nil
		})
	questionFixtures(s)
	taskFixtures(s)
	resourceFixtures(s)
	promptFixtures(s)
}

func addFixture(s *sdk.Server, name, schema string, do sdk.ToolHandler) {
	s.AddTool(&sdk.Tool{Name: name, Description: "a fixture of the conformance suite", InputSchema: json.RawMessage(schema)}, do)
}

func answerWith(s *sdk.Server, name string, content ...sdk.Content) {
	addFixture(s, name, `{"type":"object"}`, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: content}, nil
	})
}

func say(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// The suite checks kinds and MIME types, not the content of images and audio.
var (
	picture  = &sdk.ImageContent{MIMEType: "image/png", Data: []byte("\x89PNG\r\n\x1a\n")}
	sound    = &sdk.AudioContent{MIMEType: "audio/wav", Data: []byte("RIFF\x04\x00\x00\x00WAVE")}
	contents = map[string][]sdk.Content{
		"test_simple_text":            {&sdk.TextContent{Text: "This is a simple text response for testing."}},
		"test_image_content":          {picture},
		"test_audio_content":          {sound},
		"test_embedded_resource":      {embedded("test://embedded-resource")},
		"test_multiple_content_types": {&sdk.TextContent{Text: "Multiple content types test:"}, picture, embedded("test://mixed-content-resource")},
		"test_streaming_elicitation":  {&sdk.TextContent{Text: "a response and no request"}},
	}
)

func embedded(uri string) sdk.Content {
	return &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: uri, MIMEType: "text/plain", Text: "This is an embedded resource content."}}
}

// richSchema has the vocabulary that must come through a listing unchanged.
const richSchema = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
	"$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
	"properties": {
		"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}, "contactMethod": {"type": "string", "enum": ["phone", "email"]},
		"phone": {"type": "string"}, "email": {"type": "string"}
	},
	"allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
	"if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
	"then": {"required": ["phone"]}, "else": {"required": ["email"]}, "additionalProperties": false
}`

func logThrice(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	for _, text := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
		if err := r.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: text}); err != nil {
			return nil, err
		}
	}
	return say("logged"), nil
}

func progressThrice(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	token := r.Params.GetProgressToken()
	for _, done := range []float64{0, 50, 100} {
		if err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: done, Total: 100}); err != nil {
			return nil, err
		}
	}
	return say(fmt.Sprint(token)), nil
}

func failAlways(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	res := say("This tool intentionally returns an error for testing")
	res.IsError = true
	return res, nil
}

func needSampling(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	if caps := r.ClientCapabilities(); caps != nil && caps.Sampling != nil {
		return say("the client samples"), nil
	}
	return nil, &jsonrpc.Error{
		Code: sdk.CodeMissingRequiredClientCapabilities, Message: "sampling is needed",
		Data: json.RawMessage(`{"requiredCapabilities":{"sampling":{}}}`),
	}
}

// dropStream ends the stream of the call; the client then reconnects.
func dropStream(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	if r.Extra != nil && r.Extra.CloseSSEStream != nil {
		r.Extra.CloseSSEStream(sdk.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
	}
	return say("Reconnection test completed successfully"), nil
}

const watchedURI = "test://watched-resource"

func resourceFixtures(s *sdk.Server) {
	static := func(name string, content sdk.ResourceContents) {
		s.AddResource(&sdk.Resource{URI: content.URI, Name: name, Description: "a fixture", MIMEType: content.MIMEType},
			func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
				return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{&content}}, nil
			})
	}
	static("static-text", sdk.ResourceContents{URI: "test://static-text", MIMEType: "text/plain", Text: "This is the content of the static text resource."})
	static("static-binary", sdk.ResourceContents{URI: "test://static-binary", MIMEType: "image/png", Blob: picture.Data})
	static("watched", sdk.ResourceContents{URI: watchedURI, MIMEType: "text/plain", Text: "watched"})
	s.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: "test://template/{id}/data", Name: "template", MIMEType: "application/json"},
		func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(r.Params.URI, "test://template/"), "/data")
			text := fmt.Sprintf(`{"id":%q,"templateTest":true,"data":"Data for ID: %s"}`, id, id)
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: r.Params.URI, MIMEType: "application/json", Text: text}}}, nil
		})
}

func promptFixtures(s *sdk.Server) {
	text := func(text string) sdk.Content { return &sdk.TextContent{Text: text} }
	add := func(name string, do sdk.PromptHandler, arguments ...string) {
		p := &sdk.Prompt{Name: name, Description: "a fixture of the conformance suite"}
		for _, one := range arguments {
			p.Arguments = append(p.Arguments, &sdk.PromptArgument{Name: one, Description: "for a test", Required: true})
		}
		s.AddPrompt(p, do)
	}
	add("test_simple_prompt", promptWith(text("This is a simple prompt for testing.")))
	add("test_prompt_with_image", promptWith(picture, text("Please analyze the image above.")))
	add("test_prompt_with_arguments", func(ctx context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		given := r.Params.Arguments
		return promptWith(text(fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", given["arg1"], given["arg2"])))(ctx, r)
	}, "arg1", "arg2")
	add("test_prompt_with_embedded_resource", func(ctx context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		return promptWith(embedded(r.Params.Arguments["resourceUri"]), text("Please process the embedded resource above."))(ctx, r)
	}, "resourceUri")
	add("test_input_required_result_prompt", askForContext)
}

func promptWith(content ...sdk.Content) sdk.PromptHandler {
	return func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		res := &sdk.GetPromptResult{}
		for _, one := range content {
			res.Messages = append(res.Messages, &sdk.PromptMessage{Role: "user", Content: one})
		}
		return res, nil
	}
}
