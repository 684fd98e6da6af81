package doctor

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	egressFix    = "use another runtime, such as runc or crun, and check the other lines; sessions without --allow don't need this"
	proxylessFix = "programs that know the variables of a proxy are served; for the others use runc or crun, and a kernel with net.ipv4.ip_unprivileged_port_start"

	greeting     = "hello from doctor"
	egressHeader = 5 * time.Second
)

// egressSource reports which hosts a program can reach if one port of this machine is allowed.
const egressSource = `
import socket, sys, urllib.error, urllib.request
port, greeting, said = sys.argv[1], sys.argv[2], []
def get(url, *handlers):
    try:
        return urllib.request.build_opener(*handlers).open(url, timeout=10).read().decode()
    except urllib.error.HTTPError as e:
        return "" if e.code in (400, 403, 502) else url
    except OSError:
        return ""
try:
    server = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(server.getsockname(), 5).close()
    said.append("loopback")
except OSError: pass
allowed = "http://host.wisbox:" + port + "/"
if get(allowed) == greeting: said.append("proxy")
if get(allowed, urllib.request.ProxyHandler({})) == greeting: said.append("proxyless")
for url in ("http://host.wisbox:1/", "http://10.88.0.1/", "http://169.254.169.254/", "http://localhost.wisbox:" + port + "/"):
    if get(url): said.append("reached:" + url)
print(" ".join(said))`

// egress opens a session that may connect to one port of this machine, with a server there.
func (e *examination) egress(ctx context.Context) Line {
	port, stop, err := greeter()
	if err != nil {
		return Line{"egress", Skipped, "this machine's loopback can't be listened on: " + text(err), ""}
	}
	defer stop()
	s, err := e.host.Open(ctx, small, fmt.Sprintf("host:%d", port))
	if err != nil {
		return Line{"egress", NotEnforced, text(err), egressFix}
	}
	t := &trial{e: e, s: s}
	_, out, err := t.run(ctx, "python3", "-I", "-S", "-c", egressSource, fmt.Sprint(port), greeting)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), programTime)
	defer cancel()
	if closed := s.Close(end); closed != nil {
		return Line{"egress", Broken, text(closed), "remove the leftovers with: wisbox prune"}
	}
	if err != nil {
		return Line{"egress", NotEnforced, text(err), egressFix}
	}
	return egressLine(strings.Fields(out))
}

func egressLine(said []string) Line {
	if i := slices.IndexFunc(said, func(s string) bool { return strings.HasPrefix(s, "reached:") }); i >= 0 {
		return Line{"egress", Broken, "a program reached a host that no rule allows, " + strings.TrimPrefix(said[i], "reached:"), "don't use --allow here, and report it: see SECURITY.md"}
	}
	for _, need := range []struct{ name, lacks, fix string }{
		{"loopback", "the loopback device of a container is down", "use another runtime: runc and crun raise it"},
		{"proxy", "a program can't reach a host that is allowed", egressFix},
		{"proxyless", "a host that is allowed is reached by the proxy alone", proxylessFix},
	} {
		if !slices.Contains(said, need.name) {
			return Line{"egress", NotEnforced, need.lacks, need.fix}
		}
	}
	return Line{"egress", OK, "a host that --allow names is reached, by the proxy and without knowing it, and no other", ""}
}

// greeter starts a server on this machine's loopback.
func greeter() (port int, stop func(), err error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}
	server := &http.Server{ReadHeaderTimeout: egressHeader, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, greeting)
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
	return l.Addr().(*net.TCPAddr).Port, func() { _ = server.Close(); <-ended }, nil
}
