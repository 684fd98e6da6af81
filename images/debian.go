package images

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wisbox/wisbox/internal/patience"
)

const suite = "trixie"

// debootstrap is mmdebstrap's command line without packages and mirror.
var debootstrap = []string{
	"--variant=apt", "--format=tar",
	`--aptopt=Acquire::Retries "3"`,
	"--dpkgopt=force-unsafe-io",
	"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-include=/usr/share/doc/*/copyright",
	"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/info/*",
	"--dpkgopt=path-exclude=/usr/share/locale/*",
	"--dpkgopt=path-exclude=/usr/lib/*/perl/*/CORE/*",
}

// baseRecipe returns all inputs of the local base as text.
func baseRecipe() string {
	return strings.Join(append([]string{suite, pythonModule, pythonSum, runtime.GOARCH,
		string(mustRead("packages.txt"))}, debootstrap...), "\n")
}

func debianRef() string { return "localhost/wisbox-base:" + recipeHash()[:12] }

func recipeHash() string {
	sum := sha256.Sum256([]byte(baseRecipe()))
	return hex.EncodeToString(sum[:])
}

// loadDebian builds the base and loads it, or loads the archive that WriteBase wrote.
func (b *build) loadDebian(ctx context.Context, ref string) error {
	if b.opts.BaseArchive == "" {
		return b.archive(ctx, func(archive io.Reader) error { return b.load(ctx, ref, archive) })
	}
	f, err := os.Open(b.opts.BaseArchive)
	if err != nil {
		return err
	}
	defer f.Close()
	return b.load(ctx, ref, f)
}

func (b *build) load(ctx context.Context, ref string, archive io.Reader) error {
	b.say("base: loading " + ref)
	names, err := b.LoadImage(ctx, archive)
	if err == nil && !slices.Contains(names, ref) {
		return fmt.Errorf("the archive has no image %s: another version of wisbox made it; build without it", ref)
	}
	return err
}

// archive builds the base's only layer in a temporary file, since its size and digest precede it in the archive.
func (b *build) archive(ctx context.Context, use func(io.Reader) error) error {
	spool, err := os.CreateTemp(spoolDir(), "wisbox-base-")
	if err != nil {
		return err
	}
	defer spool.Close()
	if err := os.Remove(spool.Name()); err != nil {
		return err
	}
	hash := sha256.New()
	if err := b.make(ctx, io.MultiWriter(spool, hash)); err != nil {
		return err
	}
	archive, err := newArchive(debianRef(), spool, hash.Sum(nil))
	if err != nil {
		return err
	}
	return use(archive)
}

// WriteBase writes BaseDebian for this machine to a new file, for [Options.BaseArchive]: it needs no container store,
// so it may run while wisbox itself is compiled. If a registry answers, it returns false and writes no file.
func WriteBase(ctx context.Context, file string, opts *Options) (written bool, err error) {
	b := newBuild(nil, opts)
	if b.opts.Base != BaseDebian && b.probe(ctx) == nil {
		return false, nil
	}
	err = b.archive(ctx, func(archive io.Reader) error {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, archive)
		if err := errors.Join(err, f.Close()); err != nil {
			return errors.Join(err, os.Remove(file))
		}
		return nil
	})
	return err == nil, err
}

// spoolDir returns a directory for some hundred MB; /tmp is often in memory.
func spoolDir() string {
	if os.Getenv("TMPDIR") != "" {
		return os.TempDir()
	}
	return "/var/tmp"
}

// writeDebianLayer writes Debian's files and then Python's as one tar.
func (b *build) writeDebianLayer(ctx context.Context, w io.Writer) error {
	group, gctx := errgroup.WithContext(ctx)
	var python pythonFiles
	group.Go(func() (err error) {
		python, err = fetchPython(gctx)
		b.sayIf(err == nil, "base: CPython "+pythonVersion+" is here")
		return err
	})
	tw := tar.NewWriter(w)
	group.Go(func() error { return b.copyDebian(gctx, tw) })
	if err := group.Wait(); err != nil {
		return err
	}
	if err := python.writeTo(tw); err != nil {
		return fmt.Errorf("unpack CPython: %w", err)
	}
	return tw.Close()
}

func (b *build) sayIf(ok bool, line string) {
	if ok {
		b.say(line)
	}
}

// copyDebian runs mmdebstrap and copies its tar.
func (b *build) copyDebian(ctx context.Context, tw *tar.Writer) error {
	path, err := exec.LookPath("mmdebstrap")
	if err != nil {
		return errors.New("mmdebstrap is missing: install the Debian package mmdebstrap (apt-get install mmdebstrap)")
	}
	cmd := exec.CommandContext(ctx, path, b.debootstrapArgs()...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // so that it removes its directory
	cmd.WaitDelay = patience.For(20 * time.Second)
	var last tail
	cmd.Stderr = &lineWriter{line: func(s string) { last.add(s); b.say("base: " + s) }}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	copyErr := copyTar(tw, bufio.NewReaderSize(out, 1<<20))
	_, _ = io.Copy(io.Discard, out) // otherwise mmdebstrap would block and never end
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("mmdebstrap: %w: %s", err, last.String())
	}
	return copyErr
}

func (b *build) debootstrapArgs() []string {
	packages := strings.Join(strings.Fields(string(mustRead("packages.txt"))), ",")
	args := append([]string{"--include=" + packages}, debootstrap...)
	args = append(args, suite, "-")
	if b.opts.Mirror != "" {
		args = append(args, b.opts.Mirror)
	}
	return args
}

// copyTar copies all entries without set-id bits, except device files, which no image needs and a rootless store can't
// create.
func copyTar(tw *tar.Writer, r io.Reader) error {
	tr := tar.NewReader(r)
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if hdr.Typeflag == tar.TypeChar || hdr.Typeflag == tar.TypeBlock {
			continue
		}
		hdr.Mode &^= 0o6000
		if err := tw.WriteHeader(hdr); err != nil {
			return err
		}
		if _, err := io.Copy(tw, tr); err != nil {
			return err
		}
	}
}
