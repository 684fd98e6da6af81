package mcpserver

import (
	"context"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/tool"
)

// Templates of the resources. SESSION is the session's name, or over stateless HTTP its handle.
const (
	fileTemplate   = "wisbox://{session}/file/{+path}"
	outputTemplate = "wisbox://{session}/output/{id}/{stream}"
	diffTemplate   = "wisbox://{session}/diff/{from}"
	diffToTemplate = "wisbox://{session}/diff/{from}/{to}"
	digestTemplate = "wisbox://{session}/digest"
)

// maxResource is the maximum size of a resource that is read, in bytes.
const maxResource = 4 << 20

// finder returns a client's session of that name, or with "" the one of its connection. The caller calls done when it
// no longer uses it.
type finder func(conn *mcp.ServerSession, owner, name string) (s Session, done func(), err error)

// resources offers the files of sessions and outputs that are too long for a result as resources, which clients may
// show, attach or watch.
type resources struct {
	server *Server
	sdk    *mcp.Server
	find   finder
	watches
}

// offer adds the resources to a server of the SDK.
func (r *resources) offer(sdk *mcp.Server) {
	r.sdk = sdk
	for _, t := range []mcp.ResourceTemplate{
		{URITemplate: fileTemplate, Name: "file", Title: "A file of the workspace", Description: "A file by its path in the workspace. Text as it is, other content as base64; at most 4 MiB."},
		{URITemplate: outputTemplate, Name: "output", Title: "The output of a command", MIMEType: textPlain, Description: "What a command wrote to stdout or stderr, by the output_id of its result; at most 4 MiB."},
		{URITemplate: diffTemplate, Name: "diff", Title: "What has changed since a snapshot", MIMEType: textDiff, Description: "The paths that were added (A), changed (M) and removed (D) since a snapshot, by its id, and unified diffs of text."},
		{URITemplate: diffToTemplate, Name: "diff-to", Title: "What changed between two snapshots", MIMEType: textDiff, Description: "The same from one snapshot to a later one."},
		{URITemplate: digestTemplate, Name: "digest", Title: "The summary of the workspace", MIMEType: textMarkdown, Description: "Layout, languages, commands and caveats."},
	} {
		sdk.AddResourceTemplate(&t, r.read)
	}
	sdk.AddReceivingMiddleware(r.listing)
}

func (r *resources) read(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	name, kind, rest, ok := splitURI(uri)
	if !ok {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	session, done, err := r.enter(ctx, req.Session, name)
	if err != nil {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	defer done()
	content, err := readers[kind](ctx, under(session), rest)
	if err != nil {
		return nil, resourceError(uri, err)
	}
	content.URI = uri
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{content}, Cacheable: mcp.Cacheable{CacheScope: "private"}}, nil
}

// enter finds a session and waits for its turn.
func (r *resources) enter(ctx context.Context, conn *mcp.ServerSession, name string) (Session, func(), error) {
	session, done, err := r.find(conn, ownerFrom(ctx), name)
	if err != nil {
		return nil, nil, err
	}
	leave, err := r.server.turn(ctx)
	if err != nil {
		done()
		return nil, nil, err
	}
	return session, func() { leave(); done() }, nil
}

// splitURI splits one of our URIs. There is a reader for kind.
func splitURI(uri string) (session, kind, rest string, ok bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != scheme || u.Host == "" {
		return "", "", "", false
	}
	kind, rest, deeper := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	_, known := readers[kind]
	return u.Host, kind, rest, known && deeper == (kind != "digest") && deeper == (rest != "")
}

const scheme = "wisbox"

func uriOf(session, kind, rest string) string {
	return (&url.URL{Scheme: scheme, Host: session, Path: "/" + kind + rest}).String()
}

func fileURI(session, path string) string {
	return uriOf(session, "file", "/"+strings.TrimPrefix(path, "/"))
}

// resourceError returns an error with as much detail as the tools' own. To the protocol,
// an invalid path is a resource that doesn't exist.
func resourceError(uri string, err error) error {
	e := tool.AsError(err)
	if e.Kind == tool.NotFound {
		return mcp.ResourceNotFoundError(uri)
	}
	code := jsonrpc.CodeInvalidParams
	if e.Kind == tool.Internal || e.Kind == tool.Unavailable || e.Kind == tool.Closed {
		code = jsonrpc.CodeInternalError
	}
	return &jsonrpc.Error{Code: int64(code), Message: e.Error()}
}
