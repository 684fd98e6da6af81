package podman

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/distribution/reference"

	"github.com/wisbox/wisbox/sandbox"
)

var _ sandbox.ImagePuller = (*Backend)(nil)

// PullImage fetches an image from its registry, for as long as ctx allows. Podman itself keeps the logins (podman
// login) and the registries that it may reach without TLS (registries.conf).
func (b *Backend) PullImage(ctx context.Context, ref string, opts *sandbox.PullOptions) error {
	if opts == nil {
		opts = &sandbox.PullOptions{}
	}
	query := url.Values{"reference": {ref}, "policy": {"always"}}
	if opts.Insecure {
		query.Set("tlsVerify", "false")
	}
	err := b.transfer(ctx, request{
		method: http.MethodPost, path: "/images/pull", query: query, sink: &progress{line: opts.Progress}, doing: "pull the image",
		explain: func(err error) *Error { return pullError(ref, err) },
	})
	if err != nil {
		return err
	}
	return b.checkPlatform(ctx, ref)
}

// checkPlatform refuses an image that can't run here: a registry may have the image only for other architectures.
func (b *Backend) checkPlatform(ctx context.Context, ref string) error {
	e, err := b.engine(ctx)
	if err != nil {
		return err
	}
	i, err := b.inspectImage(ctx, ref)
	if err != nil {
		return explain(ctx, "look at the image", err)
	}
	here := e.info.Host.Arch
	if i.OS != "linux" && i.OS != "" || i.Arch != here && i.Arch != "" && here != "" {
		return fail(sandbox.ErrUnavailable, nil, "image %s: it is for %s/%s and this machine is linux/%s; choose a tag for that", ref, i.OS, i.Arch, here)
	}
	return nil
}

// registryProblems maps the errors of the registry library that Podman uses to our texts. %[1]s is the image, %[2]s its
// registry.
var registryProblems = []struct {
	says []string
	msg  string
}{
	{[]string{"no such host", "server misbehaving", "name resolution"},
		"image %[1]s: there is no host %[2]s, or this machine has no way to it; check the registry's name and the network"},
	{[]string{"server gave http response to https client"},
		"image %[1]s: the registry %[2]s speaks HTTP without TLS; if you trust the network to it pull with `wisbox image pull --tls-verify=false`, or set insecure = true for it in registries.conf"},
	{[]string{"x509: ", "certificate", "tls: "},
		"image %[1]s: the certificate of the registry %[2]s can't be verified; put its CA into /etc/containers/certs.d/%[2]s/ca.crt, or if you trust the network to it pull with `wisbox image pull --tls-verify=false`"},
	{[]string{"toomanyrequests", "429 too many"},
		"image %[1]s: the registry %[2]s accepts no more requests for now; wait, or log in with `podman login %[2]s`"},
	{[]string{"unauthorized", "authentication required", "invalid username/password", "access to the resource is denied", "denied: ", "403 "},
		"image %[1]s: the registry %[2]s requires a login, or the image does not exist; check the name, or log in with `podman login %[2]s`"},
	{[]string{"manifest unknown", "name unknown", "repository name not known", "not found", "404 "},
		"image %[1]s: the registry %[2]s has no such image or tag; check the name and the tag"},
	{[]string{"no image found in", "choosing an image from manifest list"},
		"image %[1]s: the registry %[2]s has it only for other machines than this one; choose another image or tag"},
	{[]string{"rejected by policy", "source image rejected"},
		"image %[1]s: Podman's policy (policy.json) doesn't allow images of %[2]s; allow it there"},
	{[]string{"connection refused", "no route to host", "network is unreachable", "connection reset", "i/o timeout", "deadline exceeded", ": eof", "unexpected eof"},
		"image %[1]s: the registry %[2]s does not answer; check its name and port, and the network"},
	{[]string{"digest did not match", "verification failed", "does not match", "invalid checksum"},
		"image %[1]s: the data from the registry %[2]s doesn't match its manifest; try again, and don't trust the registry if it happens again"},
	{[]string{"short-name", "did not resolve to an alias"},
		"image %[1]s: the name has no registry; write it with one, as docker.io/library/%[1]s"},
}

// pullError turns a registry's answer into an error, nil if the answer is unknown.
func pullError(ref string, err error) *Error {
	if says(err, "no space left", "enospc") {
		return nil // explain handles it
	}
	// The image's name is not part of the registry's answer.
	said := errors.New(strings.ReplaceAll(err.Error(), strings.TrimSuffix(ref, ":latest"), ""))
	for _, p := range registryProblems {
		if says(said, p.says...) {
			return fail(sandbox.ErrUnavailable, err, p.msg, ref, registryOf(ref))
		}
	}
	return fail(sandbox.ErrUnavailable, err, "image %s: podman could not pull it from %s; try `podman pull %[1]s`, which prints the cause", ref, registryOf(ref))
}

func registryOf(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "of that name"
	}
	return reference.Domain(named)
}

// howToGet reports where a missing image comes from.
func howToGet(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	switch {
	case err != nil || strings.HasPrefix(ref, "localhost/wisbox:"):
		return "make it with `wisbox image build`"
	case reference.Domain(named) == "localhost":
		return "build it with `wisbox image build -f Containerfile -t " + ref + "`"
	case !strings.HasPrefix(ref, reference.Domain(named)+"/"):
		return "write its registry in front, as " + reference.TagNameOnly(named).String() + ", or build it with `wisbox image build -f Containerfile -t " + ref + "`"
	}
	return "fetch it with `wisbox image pull " + ref + "`"
}

// splitName splits a full name at the tag's colon.
func splitName(name string) (repo, tag string, err error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil || !strings.HasPrefix(name, reference.Domain(named)+"/") {
		return "", "", fail(sandbox.ErrInvalid, err, "the image name %s isn't complete; write it as localhost/mine:1", fmt.Sprintf("%q", name))
	}
	tag = "latest"
	if t, ok := named.(reference.Tagged); ok {
		tag = t.Tag()
	}
	return named.Name(), tag, nil
}
