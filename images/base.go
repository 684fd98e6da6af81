package images

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

const (
	registryRef = "docker.io/library/python:3.12-slim"
	registryURL = "https://registry-1.docker.io/v2/"
)

var (
	probeDeadline = patience.For(5 * time.Second)
	pullDeadline  = patience.For(5 * time.Minute)
)

// base finds or builds the base of the Containerfile, and returns its kind and reference.
func (b *build) base(ctx context.Context) (Base, string, error) {
	if b.opts.Base == BaseDebian {
		return b.debian(ctx, "as asked")
	}
	err := b.registry(ctx)
	switch {
	case err == nil:
		b.say("base: " + registryRef)
		return BaseRegistry, registryRef, nil
	case ctx.Err() != nil:
		return "", "", context.Cause(ctx)
	case b.opts.Base == BaseRegistry:
		return "", "", err
	}
	return b.debian(ctx, err.Error())
}

// registry brings the registry's base into the store. It probes the registry first: a pull from a registry that never
// answers takes minutes to fail.
func (b *build) registry(ctx context.Context) error {
	if _, err := b.ImageInfo(ctx, registryRef); err == nil && !b.opts.Rebuild {
		return nil
	}
	if err := b.probe(ctx); err != nil {
		return err
	}
	b.say("pulling " + registryRef)
	ctx, cancel := context.WithTimeout(ctx, pullDeadline)
	defer cancel()
	return b.PullImage(ctx, registryRef, &sandbox.PullOptions{Progress: b.say})
}

// probeRegistry sends one request. Docker Hub answers 401 to clients that aren't logged in.
func probeRegistry(ctx context.Context) error {
	return probeURL(ctx, registryURL)
}

func probeURL(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, probeDeadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return errors.New("no registry answers")
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusUnauthorized {
		return fmt.Errorf("the registry answers %d", resp.StatusCode)
	}
	return nil
}

// debian builds the local base, or uses the one of an earlier build.
func (b *build) debian(ctx context.Context, why string) (Base, string, error) {
	ref := debianRef()
	b.say(fmt.Sprintf("base: Debian %s with CPython %s (%s)", suite, pythonVersion, why))
	_, err := b.ImageInfo(ctx, ref)
	if err == nil && !b.opts.Rebuild {
		return BaseDebian, ref, nil
	}
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return "", "", err
	}
	return BaseDebian, ref, b.loadDebian(ctx, ref)
}
