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

// PullImage fetches an image from its registry, for as long as ctx allows. Podman
// itself has the logins (podman login) and the registries that may do without TLS
// (registries.conf).
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

// checkPlatform refuses an image that can't run here: a registry may have the image for
// other machines alone.
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

// registryProblems are the ways in which a registry says no, in the words of the
// library that Podman asks it with. %[1]s is the image, %[2]s its registry.
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
		"image %[1]s: the registry %[2]s takes no more requests for now; wait, or log in with `podman login %[2]s`"},
	{[]string{"unauthorized", "authentication required", "invalid username/password", "access to the resource is denied", "denied: ", "403 "},
		"image %[1]s: the registry %[2]s wants a login for it, or doesn't know the name; check the name, or log in with `podman login %[2]s`"},
	{[]string{"manifest unknown", "name unknown", "repository name not known", "not found", "404 "},
		"image %[1]s: the registry %[2]s has no such image or tag; check the name behind the host and the tag"},
	{[]string{"no image found in", "choosing an image from manifest list"},
		"image %[1]s: the registry %[2]s has it for other machines than this one only; choose another image or tag"},
	{[]string{"rejected by policy", "source image rejected"},
		"image %[1]s: Podman's policy (policy.json) doesn't allow images of %[2]s; allow it there"},
	{[]string{"connection refused", "no route to host", "network is unreachable", "connection reset", "i/o timeout", "deadline exceeded", ": eof", "unexpected eof"},
		"image %[1]s: the registry %[2]s does not answer; check its name and port, and the network"},
	{[]string{"digest did not match", "verification failed", "does not match", "invalid checksum"},
		"image %[1]s: what the registry %[2]s sent isn't what its manifest names; try again, and don't trust the registry if it stays so"},
	{[]string{"short-name", "did not resolve to an alias"},
		"image %[1]s: the name has no registry; write it with one, as docker.io/library/%[1]s"},
}

// pullError puts a registry's answer into words; nil where it isn't known.
func pullError(ref string, err error) *Error {
	if says(err, "no space left", "enospc") {
		return nil // explain knows it
	}
	// The name of the image isn't what the registry said.
	said := errors.New(strings.ReplaceAll(err.Error(), strings.TrimSuffix(ref, ":latest"), ""))
	for _, p := range registryProblems {
		if says(said, p.says...) {
			return fail(sandbox.ErrUnavailable, err, p.msg, ref, registryOf(ref))
		}
	}
	return fail(sandbox.ErrUnavailable, err, "image %s: podman could not pull it from %s; try `podman pull %[1]s`, whose words say more", ref, registryOf(ref))
}

func registryOf(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "of that name"
	}
	return reference.Domain(named)
}

// howToGet says where a missing image comes from.
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

// splitName cuts a full name into what stands before and behind the tag's colon.
func splitName(name string) (repo, tag string, err error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil || !strings.HasPrefix(name, reference.Domain(named)+"/") {
		return "", "", fail(sandbox.ErrInvalid, err, "the image's name %s isn't a full one; write it as localhost/mine:1", fmt.Sprintf("%q", name))
	}
	tag = "latest"
	if t, ok := named.(reference.Tagged); ok {
		tag = t.Tag()
	}
	return named.Name(), tag, nil
}
