#!/bin/bash
# github.com/mark3labs/mcp-go v1.2.1 (Go's proxy), Client.Close of the stdio transport.
#
# What one would guess: Close ends the server as MCP describes it, first by the end of its input, and returns an error if
# that didn't work. A server that needs some seconds to clean up, and then ends with 0, gives no error. What the server
# writes to stderr meanwhile still has a reader.
#
# What happens: Close waits two seconds, a constant without an option, then sends SIGTERM, and returns as its own error
# what that signal made of the server ("signal: terminated", or the server's exit status). It closes its end of stderr
# before it waits, so that a server which writes a line there while it ends gets SIGPIPE, even if it ends in time.
#
# Output seen:
EXPECTED="\
ends at once: <nil>
ends after 3 s: signal: terminated
writes a line to stderr at its end: signal: broken pipe"
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOFLAGS=-mod=mod GOWORK=off
go mod init example.com/close 2>/dev/null
go get github.com/mark3labs/mcp-go@v1.2.1 2>/dev/null
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
)

func main() {
	for _, c := range []struct{ what, script string }{
		{"ends at once", "cat >/dev/null"},
		{"ends after 3 s", "cat >/dev/null; exec sleep 3"},
		{"writes a line to stderr at its end", "cat >/dev/null; exec /bin/echo ending >&2"},
	} {
		server := transport.NewStdio("sh", nil, "-c", c.script)
		if err := server.Start(context.Background()); err != nil {
			panic(err)
		}
		time.Sleep(200 * time.Millisecond)
		fmt.Printf("%s: %v\n", c.what, server.Close())
	}
}
GO
seen=$(go run .)
[ "$seen" = "$EXPECTED" ] || { echo "it changed:"; diff <(echo "$EXPECTED") <(echo "$seen"); exit 1; }
echo "$seen"
