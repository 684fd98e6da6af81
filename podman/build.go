package podman

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/wisbox/wisbox/sandbox"
)

// ociManifest must be given: without a format, the service doesn't find the layers of an earlier build,
// which has one.
const ociManifest = "application/vnd.oci.image.manifest.v1+json"

// BuildImage builds the Containerfile in a tar archive and tags the result. If ctx ends, the build ends,
// and if the service is our own so does the current step.
func (b *Backend) BuildImage(ctx context.Context, contextTar io.Reader, build sandbox.ImageBuild) error {
	file := cmp.Or(build.File, "Containerfile")
	query := url.Values{
		"t": {build.Tag}, "layers": {strconv.FormatBool(build.Layers)}, "rm": {"true"}, "forcerm": {"true"},
		"networkmode": {"host"}, "pullpolicy": {"missing"},
	}
	bound(query, build)
	if build.Layers {
		query.Set("outputformat", ociManifest)
	}
	for name, v := range map[string]any{"dockerfile": []string{file}, "buildargs": build.Args, "labels": build.Labels, "excludes": build.Exclude} {
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if string(data) != "null" {
			query.Set(name, string(data))
		}
	}
	r := request{
		method: http.MethodPost, path: "/build", query: query, stream: contextTar,
		sink: &progress{line: build.Progress}, doing: "build the image",
	}
	e, end, err := b.builder(ctx)
	if err != nil {
		return err
	}
	defer end()
	var many atomic.Bool // cgroups
	ended, err := b.boundSteps(e, query, build, func() { many.Store(true); end() })
	if err != nil {
		return err
	}
	defer func() {
		end() // the service first, which would start the next step
		ended()
	}()
	if build.Explain {
		r.explain = func(err error) *Error {
			if version := e.info.Version.Version; build.HereDocs && says(err, "unknown instruction") && lacksHereDocs(version) {
				return noHereDocs(version, err)
			}
			return buildError(err)
		}
	}
	ctx, tooMuch, stop := boundDisk(ctx, e.info.Store.GraphRoot, build.MaxDisk)
	defer stop()
	if err := b.devices.during(func() error { return e.build(ctx, r, end) }); err != nil {
		if many.Load() {
			return fail(sandbox.ErrInvalid, err, "Containerfile: a step makes too many cgroups; change it, and build again")
		}
		return cmp.Or(tooMuch(), err)
	}
	return nil
}

// lacksHereDocs reports whether a version of Podman has a builder without here-documents.
func lacksHereDocs(version string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return n == 2 && (major < 4 || major == 4 && minor < 8)
}

func noHereDocs(version string, err error) *Error {
	return fail(sandbox.ErrInvalid, err, "Containerfile: the builder of Podman %s has no here-documents (RUN <<EOF), which came with Podman 4.8, and takes their lines for instructions (%s); "+
		"join commands with && and \\, or COPY a file with them", version, apiText(err))
}

// build runs one build. end stops the build's service, if it has its own.
func (e *engine) build(ctx context.Context, r request, end func()) error {
	if !e.alone {
		return e.transfer(ctx, r)
	}
	defer context.AfterFunc(ctx, end)() // before the connection breaks: it takes its container with it then
	err := e.transfer(context.WithoutCancel(ctx), r)
	if err != nil && ctx.Err() != nil {
		return fail(ctx.Err(), err, "the build was ended")
	}
	return err
}

// period is the period in microseconds of the processor quota of a step.
const period = 100_000

// bound sets the limits of RUN steps.
func bound(query url.Values, build sandbox.ImageBuild) {
	if build.NoNetwork { // a namespace of its own, in which nothing is set up
		query.Set("networkmode", "NetworkDisabled")
		query.Set("nsoptions", `[{"Name":"network","Host":false}]`)
	}
	if build.Memory > 0 {
		query.Set("memory", strconv.FormatInt(build.Memory, 10))
		query.Set("memswap", strconv.FormatInt(build.Memory, 10)) // no swap beside it
	}
	if build.CPUs > 0 {
		query.Set("cpuperiod", strconv.Itoa(period))
		query.Set("cpuquota", strconv.FormatInt(int64(build.CPUs*period), 10))
	}
}

// pulling matches Podman's error for an image of a FROM line that it could not pull.
var pulling = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:initializing source docker://|pulling image "?(?:docker://)?|short-name "?|reading manifest \S+ in )([A-Za-z0-9][\w.:/@-]*\w)`)
})

// buildError returns an error for the author of the Containerfile. Its text is Podman's own, except for
// errors of a base image's registry.
func buildError(err error) *Error {
	text := apiText(err)
	m := pulling().FindStringSubmatch(text)
	switch {
	case m != nil && !says(err, "while running runtime"):
		return baseError(m[1], err)
	case says(err, "no space left", "enospc"):
		return nil // explain knows it
	}
	return fail(sandbox.ErrInvalid, err, "Containerfile: %s; change that, and build again", text)
}

// baseError returns the error for an image of a FROM line.
func baseError(ref string, err error) *Error {
	if registryOf(ref) == "localhost" {
		return fail(sandbox.ErrUnavailable, err, "Containerfile: image %s not found; %s", ref, howToGet(ref))
	}
	known := pullError(ref, err)
	if known != nil {
		known.Msg = "Containerfile: " + known.Msg
	}
	return known
}

const maxBuildError = 2000 // bytes of Podman's words that are shown

// noise matches irrelevant parts of Podman's texts: the path where the service unpacked the context, and
// Go values of its parser.
var noise = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`checking on sources under "[^"]*": |/[\w./-]*libpod_builder\d+/build/?|&imagebuilder\.Step\{.*|^error `)
})

// apiText returns the service's error text on one line.
func apiText(err error) string {
	text := err.Error()
	if api := (*apiError)(nil); errors.As(err, &api) {
		text = api.Message
	}
	text = strings.Join(strings.Fields(noise().ReplaceAllString(text, "")), " ")
	if len(text) > maxBuildError {
		text = strings.ToValidUTF8(text[:maxBuildError], "") + "…"
	}
	return text
}
