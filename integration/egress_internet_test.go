package integration

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/net/dns/dnsmessage"
)

// internetDir is the variable with the directory of the certificate of a test's Internet. If it is set, this program is
// that Internet.
const internetDir = "WISBOX_TEST_INTERNET"

// sites are the hosts of the Internet, with the names of those that the presets allow.
var sites = map[string]http.HandlerFunc{
	"www.example.com": echo, "api.example.com": echo,
	"pypi.org": pypi, "files.pythonhosted.org": pypi, "registry.npmjs.org": npmRegistry, "github.com": gitHost,
	"deb.debian.org": debianMirror, "security.debian.org": debianMirror, "proxy.golang.org": goProxy,
	"index.crates.io": crates, "static.crates.io": crates,
	"api.anthropic.com": anthropicAPI, "api.openai.com": openaiAPI, "generativelanguage.googleapis.com": geminiAPI,
}

// internet serves on all addresses until it is killed.
func internet(dir string) int {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := strings.Cut(r.Host, ":")
		if serve := sites[host]; serve != nil {
			if r.TLS == nil {
				plain.Add(1)
			}
			serve(w, r)
			return
		}
		echo(w, r)
	})
	quiet := log.New(io.Discard, "", 0)
	secure, errSecure := net.Listen("tcp", ":443")
	proxy, errProxy := net.Listen("tcp", ":3128")
	names, errNames := net.ListenPacket("udp", ":53")
	if err := errors.Join(errSecure, errProxy, errNames); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, serve := range []func() error{
		func() error {
			s := &http.Server{Handler: handler, ErrorLog: quiet}
			return s.ServeTLS(secure, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
		},
		func() error { return http.Serve(proxy, http.HandlerFunc(companyProxy)) },
		func() error { return serveNames(names) },
	} {
		go func() { fmt.Fprintln(os.Stderr, serve()) }()
	}
	fmt.Fprintln(os.Stderr, http.ListenAndServe(":80", handler)) // the last: once it answers, all servers do
	return 1
}

// Counters of the Internet: bytes of uploads, smuggled requests, DNS queries, connections through the company's proxy,
// and requests to sites without TLS.
var received, smuggled, queried, tunnels, plain atomic.Int64

// echo describes its request. Below /large it sends bytes, below /upload it receives them.
func echo(w http.ResponseWriter, r *http.Request) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch first {
	case "large":
		size, _ := strconv.ParseInt(rest, 10, 64)
		w.Header().Set("Content-Length", rest)
		_, _ = io.Copy(w, stream(size))
	case "upload":
		_, _ = io.Copy(adding{}, r.Body)
	case "counted":
		_, _ = fmt.Fprintf(w, "received=%d smuggled=%d queried=%d tunnels=%d plain=%d\n",
			received.Load(), smuggled.Load(), queried.Load(), tunnels.Load(), plain.Load())
	case "smuggled":
		smuggled.Add(1)
	case "elsewhere":
		http.Redirect(w, r, "http://elsewhere.example.com/", http.StatusFound)
	default:
		_, _ = fmt.Fprintf(w, "%s %s auth=%s\n", r.Host, r.URL.Path, r.Header.Get("Authorization"))
	}
}

type adding struct{}

func (adding) Write(b []byte) (int, error) {
	received.Add(int64(len(b)))
	return len(b), nil
}

// stream returns the same bytes each time, none of which repeat.
func stream(size int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{}), size) }

// serveNames counts the queries of the host's resolver, and knows no name.
func serveNames(pc net.PacketConn) error {
	buf := make([]byte, 1500)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return err
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil {
			continue
		}
		queried.Add(1)
		m.Response, m.RCode, m.Additionals = true, dnsmessage.RCodeNameError, nil
		if raw, err := m.Pack(); err == nil {
			_, _ = pc.WriteTo(raw, from)
		}
	}
}

// companyProxy is a proxy with a password. It resolves all names to the Internet.
func companyProxy(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("me:pass")) {
		http.Error(w, "who are you?", http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect {
		tunnels.Add(1)
		echo(w, r)
		return
	}
	up, err := net.Dial("tcp", "127.0.0.1:"+r.URL.Port())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer up.Close()
	tunnels.Add(1)
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(up, c) }()
	_, _ = io.Copy(c, up)
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func send(w http.ResponseWriter, found map[string]string, path string) {
	text, ok := found[path]
	if !ok {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	if strings.HasPrefix(text, "<") {
		w.Header().Set("Content-Type", "text/html")
	}
	_, _ = io.WriteString(w, text)
}

func zipped(files ...string) string {
	var buf bytes.Buffer
	zw := zip.NewWriter(&buf)
	for i := 0; i < len(files); i += 2 {
		w, _ := zw.Create(files[i])
		_, _ = io.WriteString(w, files[i+1])
	}
	_ = zw.Close()
	return buf.String()
}

func tarred(files ...string) string {
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	tw := tar.NewWriter(zw)
	for i := 0; i < len(files); i += 2 {
		_ = tw.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))})
		_, _ = io.WriteString(tw, files[i+1])
	}
	_, _ = tw.Close(), zw.Close()
	return buf.String()
}

// pypi has a package with a command.
func pypi(w http.ResponseWriter, r *http.Request) {
	const file, info = "/wisbox_hello-1.0-py3-none-any.whl", "wisbox_hello-1.0.dist-info/"
	wheel := zipped("wisbox_hello.py", "def main(): print('hello from pypi')\n", info+"RECORD", "",
		info+"METADATA", "Metadata-Version: 2.1\nName: wisbox-hello\nVersion: 1.0\n",
		info+"WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info+"entry_points.txt", "[console_scripts]\nwisbox-hello = wisbox_hello:main\n")
	if r.Host == "pypi.org" {
		send(w, map[string]string{
			"/simple/wisbox-hello/": fmt.Sprintf("<a href='https://files.pythonhosted.org%s#sha256=%s'>%s</a>", file, sha256Hex([]byte(wheel)), file[1:]),
		}, r.URL.Path)
		return
	}
	send(w, map[string]string{file: wheel}, r.URL.Path)
}

func npmRegistry(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		_, _ = io.WriteString(w, `{"ok":true}`) // published
		return
	}
	pack := tarred("package/package.json", `{"name":"wisbox-hello","version":"1.0.0"}`, "package/index.js", "module.exports = 'hello from npm'\n")
	sum := sha512.Sum512([]byte(pack))
	version := map[string]any{"name": "wisbox-hello", "version": "1.0.0", "dist": map[string]any{
		"tarball": "https://registry.npmjs.org/wisbox-hello/-/wisbox-hello-1.0.0.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
	}}
	about, _ := json.Marshal(map[string]any{"name": "wisbox-hello", "dist-tags": map[string]any{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": version}})
	send(w, map[string]string{"/wisbox-hello": string(about), "/wisbox-hello/-/wisbox-hello-1.0.0.tgz": pack}, r.URL.Path)
}

// gitHost serves the repositories below the Internet's directory, including pushes.
func gitHost(w http.ResponseWriter, r *http.Request) {
	(&cgi.Handler{Path: os.Getenv("GIT_BACKEND"), Env: []string{
		"GIT_PROJECT_ROOT=" + filepath.Join(os.Getenv(internetDir), "git"), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=me",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}}).ServeHTTP(w, r)
}

// debianMirror has one package in each suite, and no signature.
func debianMirror(w http.ResponseWriter, r *http.Request) {
	deb := "what apt-get download doesn't look into"
	list := fmt.Sprintf("Package: wisbox-hello\nVersion: 1.0\nArchitecture: all\nMaintainer: me\nDescription: hello\nFilename: pool/wisbox-hello_1.0_all.deb\nSize: %d\nSHA256: %s\n\n",
		len(deb), sha256Hex([]byte(deb)))
	packages := "main/binary-" + runtime.GOARCH + "/Packages"
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	suite := ""
	if rest, ok := strings.CutPrefix(path, "dists/"); ok {
		suite, path, _ = strings.Cut(rest, "/")
	}
	send(w, map[string]string{
		"Release": fmt.Sprintf("Origin: test\nSuite: %s\nCodename: %s\nDate: Sun, 01 Jun 2025 00:00:00 UTC\nArchitectures: %s\nComponents: main\nSHA256:\n %s %d %s\n",
			suite, suite, runtime.GOARCH, sha256Hex([]byte(list)), len(list), packages),
		packages: list, "pool/wisbox-hello_1.0_all.deb": deb,
	}, path)
}

func goProxy(w http.ResponseWriter, r *http.Request) {
	const at, mod = "/example.com/hello/@v/", "module example.com/hello\n"
	send(w, map[string]string{
		at + "list": "v1.0.0\n", at + "v1.0.0.info": `{"Version":"v1.0.0","Time":"2025-01-01T00:00:00Z"}`, at + "v1.0.0.mod": mod,
		at + "v1.0.0.zip": zipped("example.com/hello@v1.0.0/go.mod", mod, "example.com/hello@v1.0.0/hello.go", "package hello\n"),
	}, r.URL.Path)
}

func crates(w http.ResponseWriter, r *http.Request) {
	crate := tarred("wisbox-hello-1.0.0/Cargo.toml", "[package]\nname = \"wisbox-hello\"\nversion = \"1.0.0\"\n", "wisbox-hello-1.0.0/src/lib.rs", "")
	send(w, map[string]string{
		"/config.json":                        `{"dl":"https://static.crates.io/crates","api":"https://crates.io"}`,
		"/wi/sb/wisbox-hello":                 fmt.Sprintf(`{"name":"wisbox-hello","vers":"1.0.0","deps":[],"cksum":%q,"features":{},"yanked":false}`+"\n", sha256Hex([]byte(crate))),
		"/crates/wisbox-hello/1.0.0/download": crate,
	}, r.URL.Path)
}
