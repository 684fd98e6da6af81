package podman

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// streamed answers with the progress events that Podman sends.
func streamed(events ...map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, e := range events {
			_ = json.NewEncoder(w).Encode(e)
		}
	}
}

func TestAPullTellsWhatPodmanSays(t *testing.T) {
	b, server := newFake(t)
	var query string
	answer := streamed(map[string]any{"stream": "Copying blob a\nCopying blob b\n"}, map[string]any{"images": []string{"abc"}})
	server.Fault("POST", "/images/pull", func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		answer(w, r)
	})
	var lines []string
	require.NoError(t, b.PullImage(t.Context(), fakeImage, &sandbox.PullOptions{Insecure: true, Progress: func(line string) { lines = append(lines, line) }}))
	assert.Equal(t, []string{"Copying blob a", "Copying blob b"}, lines)
	assert.Equal(t, "policy=always&reference=localhost%2Ffake%3A1&tlsVerify=false", query)

	server.Fault("POST", "/images/pull", func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		answer(w, r)
	})
	require.NoError(t, b.PullImage(t.Context(), fakeImage, nil))
	assert.NotContains(t, query, "tlsVerify", "registries.conf decides")
}

func TestAPullForAnotherMachineIsRefused(t *testing.T) {
	b, server := newFake(t)
	server.Fault("POST", "/images/pull", streamed(map[string]any{"images": []string{"abc"}}))
	server.Fault("GET", "/info", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"host": map[string]any{"arch": "amd64", "ociRuntime": map[string]any{"name": "fake"}}})
	})
	server.Fault("GET", "/images/", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"Id": "abc", "Os": "linux", "Architecture": "arm64"})
	})
	err := b.PullImage(t.Context(), "docker.io/x/y:1", nil)
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.ErrorContains(t, err, "linux/arm64")
}

func TestAPullEndsWithItsContext(t *testing.T) {
	b, server := newFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	server.Fault("POST", "/images/pull", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		cancel()
		<-r.Context().Done()
		close(over)
	})
	require.ErrorIs(t, b.PullImage(ctx, "docker.io/x/y:1", nil), context.Canceled)
	<-over
}

// The texts are those of the libraries under Podman, of 4.3 and of 5.
func TestTheAnswersOfRegistriesSayWhatToDo(t *testing.T) {
	const ref = "reg.example:5000/eof/404:1"
	begin := "initializing source docker://" + ref + ": "
	for said, says := range map[string]string{
		begin + `pinging container registry reg.example:5000: Get "https://reg.example:5000/v2/": dial tcp: lookup reg.example: no such host`:                                 "there is no host reg.example:5000",
		begin + `pinging container registry reg.example:5000: Get "https://reg.example:5000/v2/": dial tcp 10.0.0.1:5000: connect: connection refused`:                        "does not answer",
		begin + `pinging container registry reg.example:5000: Get "https://reg.example:5000/v2/": http: server gave HTTP response to HTTPS client`:                            "--tls-verify=false",
		begin + `pinging container registry reg.example:5000: Get "https://reg.example:5000/v2/": x509: certificate signed by unknown authority`:                              "certs.d/reg.example:5000",
		begin + `pinging container registry reg.example:5000: Get "https://reg.example:5000/v2/": tls: failed to verify certificate: x509: certificate is valid for a, not b`: "certificate",
		begin + `reading manifest 1 in reg.example:5000/eof/404: manifest unknown`:                                                                                            "no such image or tag",
		begin + `reading manifest 1 in reg.example:5000/eof/404: name unknown: repository name not known to registry`:                                                         "no such image or tag",
		begin + `reading manifest 1 in reg.example:5000/eof/404: unauthorized: authentication required`:                                                                       "podman login reg.example:5000",
		begin + `unable to retrieve auth token: invalid username/password: unauthorized: incorrect username or password`:                                                      "podman login reg.example:5000",
		begin + `reading manifest 1 in reg.example:5000/eof/404: errors: denied: requested access to the resource is denied`:                                                  "podman login reg.example:5000",
		begin + `reading manifest 1 in reg.example:5000/eof/404: toomanyrequests: You have reached your pull rate limit`:                                                      "no more requests",
		`choosing an image from manifest list docker://` + ref + `: no image found in manifest list for architecture "amd64", variant "", OS "linux"`:                         "other machines",
		`Source image rejected: Running image docker://` + ref + ` is rejected by policy.`:                                                                                    "policy.json",
		`writing blob: Digest did not match, expected sha256:1, got sha256:2`:                                                                                                 "doesn't match its manifest",
		`short-name "x" did not resolve to an alias and no unqualified-search registries are defined in "/etc/containers/registries.conf"`:                                    "docker.io/library/",
		`something that nobody has seen`: "podman pull " + ref,
	} {
		err := pullError(ref, &apiError{Status: 500, Message: said})
		require.NotNil(t, err, said)
		assert.Equal(t, sandbox.ErrUnavailable, err.Kind)
		assert.Contains(t, err.Msg, says, said)
		assert.Contains(t, err.Msg, ref)
		assert.NotContains(t, err.Msg, "/etc/containers/registries.conf\"", "no words of Podman's")
		assert.NotContains(t, err.Msg, "%!")
	}
	assert.Nil(t, pullError(ref, errors.New("writing blob: no space left on device")))
}

func TestAMissingImageSaysWhereItComesFrom(t *testing.T) {
	for ref, says := range map[string]string{
		"localhost/wisbox:0123456789ab": "make it with `wisbox image build`",
		"localhost/mine:1":              "`wisbox image build -f Containerfile -t localhost/mine:1`",
		"node:22":                       "docker.io/library/node:22",
		"docker.io/library/node:22":     "`wisbox image pull docker.io/library/node:22`",
		"localhost:5000/x":              "`wisbox image pull localhost:5000/x`",
		strings.Repeat("0", 64):         "wisbox image build",
	} {
		assert.Contains(t, howToGet(ref), says)
	}
}

func TestABuildsErrorIsInPodmansWords(t *testing.T) {
	for said, c := range map[string]struct {
		kind error
		says string
	}{
		`building at STEP "COPY a b": checking on sources under "/var/tmp/libpod_builder123/build": copier: stat: "/a": no such file or directory`: {sandbox.ErrInvalid,
			`Containerfile: building at STEP "COPY a b": copier: stat: "/a": no such file or directory; change`},
		`invalid symlink "/var/tmp/libpod_builder1868/build/m" -> "../../x"`: {sandbox.ErrInvalid, `invalid symlink "m" -> "../../x"`},
		"no FROM statement found": {sandbox.ErrInvalid, "Containerfile: no FROM statement found; change"},
		"Unknown instruction: \"RUNN\" &imagebuilder.Step{Env:[]string{\"SECRET\"}}\n": {sandbox.ErrInvalid, `Unknown instruction: "RUNN"; change`},
		`building at STEP "RUN curl": while running runtime: exit status 6`:            {sandbox.ErrInvalid, "exit status 6"},
		`creating build container: initializing source docker://reg.example/x:1: reading manifest 1 in reg.example/x: manifest unknown`: {sandbox.ErrUnavailable,
			"Containerfile: image reg.example/x:1: the registry reg.example has no such image"},
		`creating build container: initializing source docker://localhost/no:latest: pinging container registry localhost: connection refused`: {sandbox.ErrUnavailable,
			"Containerfile: image localhost/no:latest not found; build it"},
		strings.Repeat("x ", 5000): {sandbox.ErrInvalid, "…"},
	} {
		err := buildError(&apiError{Status: 500, Message: said})
		require.NotNil(t, err)
		assert.Equal(t, c.kind, err.Kind, said)
		assert.Contains(t, err.Msg, c.says)
		assert.NotContains(t, err.Msg, "libpod_builder")
		assert.NotContains(t, err.Msg, "SECRET")
		assert.Less(t, len(err.Msg), maxBuildError+200)
	}
}

func TestAnImageIsNamedWholly(t *testing.T) {
	b, server := newFake(t)
	for _, name := range []string{"mine", "a b", ""} {
		require.ErrorIs(t, b.TagImage(t.Context(), fakeImage, name), sandbox.ErrInvalid, name)
	}
	var query string
	server.Fault("POST", "/tag", func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		w.WriteHeader(http.StatusCreated)
	})
	require.NoError(t, b.TagImage(t.Context(), fakeImage, "localhost/mine"))
	assert.Equal(t, "repo=localhost%2Fmine&tag=latest", query)
}

func TestABuildSendsWhatItIsGiven(t *testing.T) {
	b, server := newFake(t)
	got := map[string]string{}
	server.Fault("POST", "/build", func(w http.ResponseWriter, r *http.Request) {
		for name := range r.URL.Query() {
			got[name] = r.URL.Query().Get(name)
		}
		fmt.Fprintln(w, `{"stream":"STEP 1"}`)
	})
	err := b.BuildImage(t.Context(), strings.NewReader("tar"), sandbox.ImageBuild{
		File: "sub/C", Tag: "localhost/x:1", Args: map[string]string{"A": "1"}, Labels: map[string]string{"l": "2"}, Exclude: []string{"sub/C"}, Layers: true,
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{
		"dockerfile": `["sub/C"]`, "t": "localhost/x:1", "buildargs": `{"A":"1"}`, "labels": `{"l":"2"}`, "excludes": `["sub/C"]`, "layers": "true",
		"outputformat": ociManifest, "rm": "true", "forcerm": "true", "networkmode": "host", "pullpolicy": "missing",
	}, got)
}
