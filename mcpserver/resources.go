package mcpserver

import (
	"context"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/tool"
)

// Underlying is implemented by a session whose tools have other names than
// wisbox's own: resources are read through those, of the session that it gives.
type Underlying interface{ Underlying() Session }

func under(s Session) Session {
	if u, ok := s.(Underlying); ok {
		return u.Underlying()
	}
	return s
}

// Templates of the resources. SESSION is the session's name, over stateless HTTP
// its handle.
const (
	fileTemplate   = "wisbox://{session}/file/{+path}"
	outputTemplate = "wisbox://{session}/output/{id}/{stream}"
)

const (
	maxResource  = 4 << 20 // bytes of one resource that is read
	maxResources = 2000    // that are listed
)

// finder gives the session that a client means by a name, or with "" the one of
// its connection. done is called when it is no longer used.
type finder func(conn *mcp.ServerSession, owner, name string) (s Session, done func(), err error)

// resources offers the files of sessions and the outputs that were too long for a
// result, as resources that clients may show or attach.
type resources struct {
	server *Server
	find   finder
}

func (s *Server) addResources(sdk *mcp.Server, find finder) {
	r := &resources{s, find}
	sdk.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: fileTemplate, Name: "file", Title: "A file of the workspace",
		Description: "A file by its path in the workspace. Text as it is, other content as base64; at most 4 MiB.",
	}, r.read)
	sdk.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: outputTemplate, Name: "output", Title: "The output of a command", MIMEType: "text/plain",
		Description: "What a command wrote to stdout or stderr, by the output_id of its result; at most 4 MiB.",
	}, r.read)
	sdk.AddReceivingMiddleware(r.listing)
}

func (r *resources) read(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	name, kind, rest, ok := splitURI(uri)
	if !ok {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	session, done, err := r.enter(ctx, req.Session, req.Extra, name)
	if err != nil {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	defer done()
	var content *mcp.ResourceContents
	if kind == "output" {
		content, err = readOutput(ctx, under(session), rest)
	} else {
		content, err = readFile(ctx, under(session), rest)
	}
	if err != nil {
		return nil, resourceError(uri, err)
	}
	content.URI = uri
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{content}, Cacheable: mcp.Cacheable{CacheScope: "private"}}, nil
}

// enter finds a session and waits for its turn.
func (r *resources) enter(ctx context.Context, conn *mcp.ServerSession, extra *mcp.RequestExtra, name string) (Session, func(), error) {
	session, done, err := r.find(conn, ownerOfExtra(extra), name)
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

func splitURI(uri string) (session, kind, rest string, ok bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "wisbox" || u.Host == "" {
		return "", "", "", false
	}
	kind, rest, ok = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	return u.Host, kind, rest, ok && rest != ""
}

func fileURI(session, path string) string {
	return (&url.URL{Scheme: "wisbox", Host: session, Path: "/file/" + strings.TrimPrefix(path, "/")}).String()
}

// resourceError says as much as the tools would. What is wrong with a path is, to
// the protocol, a resource that is not there.
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

// listing puts the files of the connection's session into resources/list. A
// connection that has no session yet has no files.
func (r *resources) listing(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		list, ok := res.(*mcp.ListResourcesResult)
		if err != nil || !ok {
			return res, err
		}
		conn, ok := req.GetSession().(*mcp.ServerSession)
		if !ok {
			return res, nil
		}
		session, done, err := r.enter(ctx, conn, req.GetExtra(), "")
		if err != nil {
			return res, nil
		}
		defer done()
		list.CacheScope = "private"
		list.Resources = append(list.Resources, r.files(ctx, session)...)
		return list, nil
	}
}

func (r *resources) files(ctx context.Context, session Session) []*mcp.Resource {
	var found struct {
		Matches []struct {
			Path      string `json:"path"`
			Kind      string `json:"kind"`
			SizeBytes int64  `json:"size_bytes"`
		} `json:"matches"`
	}
	if err := ask(ctx, under(session), "glob", map[string]any{"pattern": "**"}, &found); err != nil {
		r.server.logFailure("resources/list", err)
		return nil
	}
	var out []*mcp.Resource
	for _, f := range found.Matches {
		if f.Kind == "file" && len(out) < maxResources {
			out = append(out, &mcp.Resource{URI: fileURI(session.ID(), f.Path), Name: f.Path, Size: f.SizeBytes})
		}
	}
	return out
}

func ownerOfExtra(extra *mcp.RequestExtra) string {
	if extra == nil {
		return ""
	}
	return userOf(extra.TokenInfo)
}
