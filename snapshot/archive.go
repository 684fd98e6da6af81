package snapshot

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/wisbox/wisbox/tool"
)

// An archive is a tar file: archive.json, the caller's own files under extra/, then packs/ and
// records/ as in a store. [Archive] reads it.
const (
	archiveFormat = 1
	archiveHead   = "archive.json"
	extraDir      = "extra/"
	packsDir      = "packs/"
	recordsDir    = "records/"
	maxExtra      = 16 << 20 // bytes of all extra files
	maxExtras     = 64
)

type archiveInfo struct {
	Format int    `json:"format"`
	Head   string `json:"head"` // the snapshot of the workspace
}

var extraName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,79}$`) })

// Export writes an archive of the current workspace, of all snapshots, and of the caller's own
// small files, such as settings. Their names have lower-case letters, digits, dots and dashes,
// and they have at most 16 MiB in total. Export makes an automatic snapshot of the workspace.
func (s *Store) Export(ctx context.Context, w io.Writer, extra map[string][]byte) (Info, error) {
	head, err := s.Create(ctx, &CreateOptions{Label: "saved", Auto: true})
	if err != nil {
		return Info{}, err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return Info{}, err
	}
	defer unlock()
	a := &exporter{ctx: ctx, out: tar.NewWriter(w)}
	err = a.archive(s, head.ID, extra)
	if err = errors.Join(err, a.out.Close()); err != nil {
		return Info{}, storeError(err)
	}
	return head, nil
}

type exporter struct {
	ctx context.Context
	out *tar.Writer
}

func (a *exporter) archive(s *Store, head string, extra map[string][]byte) error {
	b, err := json.Marshal(archiveInfo{Format: archiveFormat, Head: head})
	if err != nil {
		return err
	}
	if err := a.bytes(archiveHead, b); err != nil {
		return err
	}
	size := 0
	for name, b := range extra {
		if size += len(b); !extraName().MatchString(name) || size > maxExtra {
			return tool.Errorf(tool.Internal, "%q can't be put in an archive", name)
		}
		if err := a.bytes(extraDir+name, b); err != nil {
			return err
		}
	}
	for name := range s.objects.packs {
		if err := a.file(s.packs, name, packsDir+name); err != nil {
			return err
		}
	}
	ids, err := s.ids()
	for _, id := range ids {
		err = errors.Join(err, a.file(s.records, id+recordSuffix, recordsDir+id+recordSuffix))
	}
	return err
}

func (a *exporter) bytes(name string, b []byte) error {
	return a.stream(name, int64(len(b)), bytes.NewReader(b))
}

func (a *exporter) file(root *os.Root, name, as string) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return a.stream(as, info.Size(), f)
}

func (a *exporter) stream(name string, size int64, r io.Reader) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	if err := a.out.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err := io.CopyN(a.out, r, size)
	return err
}
