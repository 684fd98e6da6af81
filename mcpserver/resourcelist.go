package mcpserver

import (
	"context"
	"encoding/base64"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Limits of one page of resources/list.
const (
	pageFiles = 500
	pageDirs  = 500    // directories read
	pageSeen  = 50_000 // entries of any kind
)

// listing adds the resources of the connection's session to resources/list. A connection without a session has none.
func (r *resources) listing(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		params, ok := req.GetParams().(*mcp.ListResourcesParams)
		if !ok {
			return next(ctx, method, req)
		}
		after, ours := "", false
		if params != nil {
			if after, ours = readCursor(params.Cursor); ours {
				params.Cursor = ""
			}
		}
		res, err := next(ctx, method, req)
		list, ok := res.(*mcp.ListResourcesResult)
		if err != nil || !ok || list.NextCursor != "" {
			return res, err
		}
		if ours { // resources without a session were on earlier pages
			list.Resources = []*mcp.Resource{}
		}
		return list, r.listSession(ctx, req, after, list)
	}
}

func (r *resources) listSession(ctx context.Context, req mcp.Request, after string, list *mcp.ListResourcesResult) error {
	conn, ok := req.GetSession().(*mcp.ServerSession)
	if !ok {
		return nil
	}
	session, done, err := r.enter(ctx, conn, "")
	if err != nil {
		return nil
	}
	defer done()
	list.CacheScope = "private"
	if after == "" {
		list.Resources = append(list.Resources, r.views(ctx, session)...)
	}
	w := &walk{session: session, last: after}
	if err := w.dir(ctx, "", strings.Split(after, "/")); err != nil {
		r.server.logFailure("resources/list", err)
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the files can't be listed; try again"}
	}
	list.Resources = append(list.Resources, w.found...)
	if w.full {
		list.NextCursor = writeCursor(w.last)
	}
	return nil
}

// Our cursors contain the path after which to continue.
const cursorMark = "file:"

func writeCursor(path string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorMark + path))
}

func readCursor(cursor string) (after string, ours bool) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return "", false
	}
	return strings.CutPrefix(string(raw), cursorMark)
}

// views returns the resources that describe the whole workspace, for which the session has the tools.
func (r *resources) views(ctx context.Context, s Session) []*mcp.Resource {
	var out []*mcp.Resource
	if r.has(s, digestTool) {
		out = append(out, &mcp.Resource{URI: uriOf(s.ID(), "digest", ""), Name: "digest", Title: "The summary of the workspace", MIMEType: textMarkdown})
	}
	for _, id := range snapshots(ctx, under(s)) {
		out = append(out, &mcp.Resource{URI: uriOf(s.ID(), "diff", "/"+id), Name: "diff " + id, Title: "What has changed since the snapshot " + id, MIMEType: textDiff})
	}
	return out
}

func snapshots(ctx context.Context, s Session) []string {
	var list struct {
		Snapshots []struct {
			ID string `json:"snapshot_id"`
		} `json:"snapshots"`
	}
	if ask(ctx, s, "snapshot_list", nil, &list) != nil {
		return nil
	}
	var ids []string
	for _, one := range list.Snapshots {
		ids = append(ids, one.ID)
	}
	return ids
}

type entry struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	SizeBytes int64  `json:"size_bytes"`
}

func entries(ctx context.Context, s Session, dir string) ([]entry, error) {
	var list struct {
		Entries []entry `json:"entries"`
	}
	err := ask(ctx, s, "ls", map[string]any{"path": "/" + dir}, &list)
	return list.Entries, err
}

// walk collects one page of files, in the order of their paths.
type walk struct {
	session Session
	found   []*mcp.Resource
	dirs    int
	seen    int    // entries seen, without those on earlier pages
	last    string // path up to which everything is listed
	full    bool
}

// dir lists a directory, starting after the path after below it. It ignores a directory that can't be read or is gone,
// except the first.
func (w *walk) dir(ctx context.Context, dir string, after []string) error {
	w.dirs++
	list, err := entries(ctx, under(w.session), dir)
	if err != nil && dir == "" || ctx.Err() != nil {
		return err
	}
	for _, e := range list {
		rest, passed := behind(e.Name, after)
		if passed {
			continue
		}
		if w.full = len(w.found) == pageFiles || w.dirs == pageDirs || w.seen == pageSeen; w.full {
			return nil
		}
		w.seen++
		path := dir + e.Name
		switch e.Kind {
		case "directory":
			if err := w.dir(ctx, path+"/", rest); err != nil || w.full {
				return err
			}
		case "file":
			w.found = append(w.found, &mcp.Resource{URI: fileURI(w.session.ID(), path), Name: path, Size: e.SizeBytes})
		}
		w.last = path
	}
	return nil
}

// behind reports whether an entry precedes the path after or equals it. Otherwise it returns the rest of after below
// the entry.
func behind(name string, after []string) (rest []string, passed bool) {
	switch {
	case name > after[0]:
		return []string{""}, false
	case name < after[0]:
		return nil, true
	}
	return after[1:], len(after) == 1
}
