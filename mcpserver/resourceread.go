package mcpserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/tool"
)

const (
	textPlain    = "text/plain"
	textDiff     = "text/x-diff"
	textMarkdown = "text/markdown"
)

// readers read the kinds of resources. rest is the part of a URI after the kind.
var readers = map[string]func(ctx context.Context, s Session, rest string) (*mcp.ResourceContents, error){
	"file": readFile, "output": readOutput, "diff": readDiff, "digest": readDigest,
}

func callWith(ctx context.Context, s Session, name string, args map[string]any) (*tool.Result, error) {
	if args == nil {
		return s.Call(ctx, name, nil)
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	return s.Call(ctx, name, raw)
}

// ask calls a tool and decodes its result object.
func ask(ctx context.Context, s Session, name string, args map[string]any, into any) error {
	res, err := callWith(ctx, s, name, args)
	if err != nil {
		return err
	}
	value, err := json.Marshal(res.Value)
	if err != nil {
		return err
	}
	return json.Unmarshal(value, into)
}

type filePage struct {
	Content   string `json:"content"`
	Limit     int64  `json:"limit"`
	SizeBytes int64  `json:"size_bytes"`
	Truncated bool   `json:"truncated"`
}

// readFile returns a file as text, or as bytes if it isn't.
func readFile(ctx context.Context, s Session, path string) (*mcp.ResourceContents, error) {
	text, err := pages(func(offset int64) (filePage, error) {
		var p filePage
		return p, ask(ctx, s, "read_file", map[string]any{"file_path": path, "offset": offset}, &p)
	})
	if err == nil {
		return &mcp.ResourceContents{Text: text, MIMEType: textPlain}, nil
	}
	if tool.KindOf(err) != tool.NotText {
		return nil, err
	}
	data, err := pages(func(offset int64) (filePage, error) {
		var p filePage
		if err := ask(ctx, s, "read_file", map[string]any{"file_path": path, "offset": offset, "encoding": "base64"}, &p); err != nil {
			return p, err
		}
		raw, err := base64.StdEncoding.DecodeString(p.Content)
		p.Content = string(raw)
		return p, err
	})
	return &mcp.ResourceContents{Blob: []byte(data), MIMEType: "application/octet-stream"}, err
}

// pages reads all pages. The result may include changes by programs meanwhile.
func pages(next func(offset int64) (filePage, error)) (string, error) {
	var b strings.Builder
	for offset := int64(0); ; {
		p, err := next(offset)
		if err != nil {
			return "", err
		}
		b.WriteString(p.Content)
		if !p.Truncated {
			return b.String(), nil
		}
		if offset += p.Limit; p.Limit == 0 || p.SizeBytes > maxResource || b.Len() > maxResource {
			return "", tooLargeResource()
		}
	}
}

func tooLargeResource() error {
	return tool.Errorf(tool.TooLarge, "the resource has more than %d bytes; read parts of it with the tools", maxResource)
}

func readOutput(ctx context.Context, s Session, rest string) (*mcp.ResourceContents, error) {
	id, stream, _ := strings.Cut(rest, "/")
	text, err := pages(func(offset int64) (filePage, error) {
		var p struct {
			Content    string `json:"content"`
			NextOffset int64  `json:"next_offset"`
			Truncated  bool   `json:"truncated"`
		}
		err := ask(ctx, s, "read_output", map[string]any{"output_id": id, "stream": stream, "offset": offset}, &p)
		return filePage{Content: p.Content, Limit: p.NextOffset - offset, Truncated: p.Truncated}, err
	})
	return &mcp.ResourceContents{Text: text, MIMEType: textPlain}, err
}

func readDiff(ctx context.Context, s Session, rest string) (*mcp.ResourceContents, error) {
	from, to, _ := strings.Cut(rest, "/")
	args := map[string]any{"from": from}
	if to != "" {
		args["to"] = to
	}
	return readText(ctx, s, "snapshot_diff", args, textDiff)
}

const digestTool = "workspace_digest"

func readDigest(ctx context.Context, s Session, _ string) (*mcp.ResourceContents, error) {
	return readText(ctx, s, digestTool, nil, textMarkdown)
}

// readText returns the readable form of a tool's result.
func readText(ctx context.Context, s Session, name string, args map[string]any, mimeType string) (*mcp.ResourceContents, error) {
	res, err := callWith(ctx, s, name, args)
	if err != nil {
		return nil, err
	}
	if len(res.Text) > maxResource {
		return nil, tooLargeResource()
	}
	return &mcp.ResourceContents{Text: res.Text, MIMEType: mimeType}, nil
}
