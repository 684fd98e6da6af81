// Package templates keeps states of workspaces for new sessions to start from. A template is a
// directory with one snapshot, which shares its packs with the session's by hard links, and
// outlives the session. It never changes. The caller stores the options of sessions in it, which
// the package doesn't interpret.
package templates

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/wisbox/wisbox/internal/jsonfile"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
)

// Template is the state of a workspace, with the settings of sessions made from it.
type Template struct {
	ID string `json:"template_id"`
	// Name refers to the template, as does its ID. If several templates of an owner have the same
	// name, it refers to the newest.
	Name string `json:"name,omitempty"`
	// Owner is the owner of the template, such as the owner of a server's key; "" is the user of
	// the state root.
	Owner string `json:"owner,omitempty"`
	// Session is the session that the files came from.
	Session string    `json:"session"`
	Image   string    `json:"image"`
	Created time.Time `json:"created_at"`
	Files   int64     `json:"files"`
	Bytes   int64     `json:"bytes"`      // of the files
	Disk    int64     `json:"disk_bytes"` // its maximum use of the disk: packs may be shared
	// Skipped are the first FIFOs, sockets and devices, which a template doesn't have; Unkept are
	// files that it has without some attributes, such as access lists.
	Skipped []string `json:"skipped,omitempty"`
	Unkept  []string `json:"unkept,omitempty"`
	// Built reports whether the image was built for this template. The image takes ImageDisk bytes
	// of Disk, and is removed with the template. Tags distinguish built templates of the same name,
	// as NAME:TAG; each refers to one of them. The name alone means NAME:default.
	Built     bool     `json:"built,omitempty"`
	ImageDisk int64    `json:"image_disk_bytes,omitempty"`
	Tags      []string `json:"tags,omitempty"`
}

// record is the content of a template's file.
type record struct {
	Template

	Snapshot string            `json:"snapshot"`
	Extra    map[string][]byte `json:"extra,omitempty"`
}

// Files of a template's directory.
const (
	recordFile   = "template.json" // written last
	lockFile     = "lock"          // shared by users of the template, exclusive for its removal
	snapshotsDir = "snapshots"
	workspaceDir = "workspace" // empty
	tmpDir       = "tmp"       // empty

	newPrefix  = ".new-"  // of a directory that is being created
	gonePrefix = ".gone-" // of a directory that is being removed
	dirMode    = 0o700
)

const (
	idLen        = 20
	maxName      = 128 // characters
	maxTemplates = 10_000
	lockEvery    = 20 * time.Millisecond
)

var useWait = patience.For(10 * time.Second) // for users of a template to finish

var (
	idForm   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]{20}$`) })
	nameForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:-]*$`) })
)

// IsID reports whether a text has the form of a template's ID.
func IsID(s string) bool { return idForm().MatchString(s) }

// CheckName checks a name.
func CheckName(name string) error {
	switch {
	case len(name) > maxName || !nameForm().MatchString(name):
		return tool.Errorf(tool.Invalid, "name must be 1 to %d letters, digits and . _ / : -, and begin with a letter or digit", maxName).In("name")
	case IsID(name):
		return tool.Errorf(tool.Invalid, "name has the form of a template's ID; choose one that is not 20 lower-case letters and digits").In("name")
	}
	return nil
}

// Store is a directory of templates. Many processes and goroutines may use it at once.
type Store struct {
	dir string
	log *slog.Logger

	mu    sync.Mutex
	known map[string]listed // by ID, so that a listing doesn't read unchanged files again
}

// listed is a template as read from a file.
type listed struct {
	file     fs.FileInfo
	template Template
}

// Open returns the Store of a directory, which the first template creates. log gets messages that
// don't concern the caller.
func Open(dir string, log *slog.Logger) *Store {
	return &Store{dir: dir, log: log, known: map[string]listed{}}
}

// locked locks the set of templates, for one process at a time.
func (s *Store) locked(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, dirMode); err != nil {
		return nil, err
	}
	return locked(ctx, filepath.Join(s.dir, lockFile), (*flock.Flock).TryLockContext, errManyChanges)
}

var (
	errManyChanges = tool.Errorf(tool.Busy, "other templates are being made or removed; try again")
	errInUse       = tool.Errorf(tool.Busy, "the template is in use by a session that is being made; try again")
)

type locker func(*flock.Flock, context.Context, time.Duration) (bool, error)

func locked(ctx context.Context, path string, take locker, busy error) (unlock func(), err error) {
	l := flock.New(path, flock.SetPermissions(0o600))
	wait, cancel := context.WithTimeout(ctx, useWait)
	defer cancel()
	if ok, err := take(l, wait, lockEvery); err != nil || !ok {
		_ = l.Close()
		switch {
		case ctx.Err() != nil:
			return nil, tool.AsError(ctx.Err())
		case wait.Err() != nil:
			return nil, busy
		}
		return nil, err
	}
	return func() { _ = l.Close() }, nil
}

// begin creates the directory of a template, invisible so far, and locks it.
func (s *Store) begin(ctx context.Context) (path string, unlock func(), err error) {
	s.Sweep(ctx, false)
	free, err := s.locked(ctx)
	if err != nil {
		return "", nil, err
	}
	defer free()
	if all, err := s.ids(); err != nil || len(all) >= maxTemplates {
		return "", nil, cmp.Or(err, error(tool.Errorf(tool.Limit, "there are %d templates; remove some first", len(all))))
	}
	path = filepath.Join(s.dir, newPrefix+newID())
	if err := os.Mkdir(path, dirMode); err != nil {
		return "", nil, err
	}
	unlock, err = locked(ctx, filepath.Join(path, lockFile), (*flock.Flock).TryLockContext, errInUse)
	return path, unlock, err
}

// newID returns an ID that nobody can guess.
func newID() string { return strings.ToLower(rand.Text())[:idLen] }

// Sweep removes templates that ended processes left half created or half removed, and returns their
// names; with dryRun it only lists them. It logs a template that can't be removed now.
func (s *Store) Sweep(ctx context.Context, dryRun bool) (left []string) {
	all, err := s.left()
	if err != nil {
		s.log.Warn("look for what is left of templates", "error", err)
	}
	for _, name := range all {
		path, dead := filepath.Join(s.dir, name), true
		var err error
		if strings.HasPrefix(name, newPrefix) {
			dead, err = s.condemn(ctx, &path, dryRun)
		}
		if err == nil && dead && !dryRun {
			err = os.RemoveAll(path)
		}
		switch {
		case err != nil:
			s.log.Warn("remove what is left of a template", "error", err)
		case dead:
			left = append(left, name)
		}
	}
	return left
}

// left returns the directories of templates that are or were being created or removed.
func (s *Store) left() (names []string, err error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), newPrefix) || strings.HasPrefix(e.Name(), gonePrefix) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// condemn reports whether nobody is creating the new template any more, and if so renames it, so
// that it can be removed without the store's lock.
func (s *Store) condemn(ctx context.Context, path *string, dryRun bool) (dead bool, err error) {
	free, err := s.locked(ctx) // the creator of a template takes its lock while it holds this one
	if err != nil {
		return false, err
	}
	defer free()
	l := flock.New(filepath.Join(*path, lockFile), flock.SetFlag(os.O_RDWR|os.O_CREATE), flock.SetPermissions(0o600))
	defer l.Close()
	if ok, err := l.TryLock(); err != nil || !ok {
		return false, ignoreMissing(err)
	}
	if dryRun {
		return true, nil
	}
	gone := filepath.Join(s.dir, gonePrefix+newID())
	err = os.Rename(*path, gone)
	*path = gone
	return err == nil, ignoreMissing(err)
}

// ignoreMissing ignores the error that somebody else was quicker.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Source is the snapshot for a new template.
type Source struct {
	Snapshots *snapshot.Store
	ID        string
	// Extra are small files that the caller stores with it.
	Extra map[string][]byte
	// Room returns an error if the host has no room for more; may be nil.
	Room func(context.Context) error
}

// Create makes a template of a snapshot, all of it or nothing, even if this process ends. It sets
// Created, Disk and a missing ID. A built template takes its tags from others of its name.
func (s *Store) Create(ctx context.Context, t Template, from Source) (_ Template, err error) {
	if t.Name != "" {
		if err := CheckName(t.Name); err != nil {
			return t, err
		}
	}
	if t.ID != "" && !IsID(t.ID) {
		return t, fmt.Errorf("a template's ID is %q", t.ID)
	}
	var cleanup undo.Steps
	defer cleanup.Run()
	path, unlock, err := s.begin(ctx)
	if path != "" {
		cleanup.Add(func() { _ = os.RemoveAll(path) })
	}
	if err != nil {
		return t, err
	}
	defer unlock()
	if err := share(ctx, path, from); err != nil {
		return t, err
	}
	rec := record{Template: t, Snapshot: from.ID, Extra: from.Extra}
	if err := rec.measure(path); err != nil {
		return t, err
	}
	rec.ID, rec.Created = cmp.Or(rec.ID, newID()), time.Now().UTC().Truncate(time.Millisecond)
	rec.Disk += rec.ImageDisk
	err = jsonfile.Write(filepath.Join(path, recordFile), rec)
	if errors.Is(err, jsonfile.ErrTooLarge) {
		err = tool.Errorf(tool.Limit, "the session's versions and definitions are too large for a template; make one from a new session with these files").Because(err)
	}
	if err != nil {
		return t, err
	}
	free, err := s.locked(ctx)
	if err != nil {
		return t, err
	}
	defer free()
	if err := os.Rename(path, filepath.Join(s.dir, rec.ID)); err != nil {
		return t, err
	}
	cleanup.Keep()
	s.takeTags(rec.Template, rec.Tags)
	return rec.Template, nil
}

// share copies the snapshot into a new directory, without data that only other snapshots need.
func share(ctx context.Context, path string, from Source) error {
	for _, name := range []string{snapshotsDir, workspaceDir, tmpDir} {
		if err := os.Mkdir(filepath.Join(path, name), dirMode); err != nil {
			return err
		}
	}
	to, err := openSnapshots(path, from.Room)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := from.Snapshots.ShareWith(ctx, from.ID, to.Store); err != nil {
		return err
	}
	return to.Remove(ctx) // with no IDs it only frees the space of other snapshots
}

// measure determines the sizes of the template.
func (r *record) measure(path string) error {
	top, err := os.OpenRoot(filepath.Join(path, snapshotsDir))
	if err != nil {
		return err
	}
	defer top.Close()
	usage, err := snapshot.UsageOf(top)
	if err != nil {
		return err
	}
	r.Disk = usage.Bytes
	for _, extra := range r.Extra {
		r.Disk += int64(base64.StdEncoding.EncodedLen(len(extra))) // their size in the file
	}
	return nil
}

// snapshots are the open snapshots of a template.
type snapshots struct {
	*snapshot.Store
	roots []*os.Root
}

func openSnapshots(path string, room func(context.Context) error) (*snapshots, error) {
	s := &snapshots{}
	var cleanup undo.Steps
	defer cleanup.Run()
	for _, name := range []string{workspaceDir, tmpDir, snapshotsDir} {
		root, err := os.OpenRoot(filepath.Join(path, name))
		if err != nil {
			return nil, err
		}
		cleanup.Close(root)
		s.roots = append(s.roots, root)
	}
	var err error
	s.Store, err = snapshot.New(&snapshot.Options{Workspace: s.roots[0], Tmp: s.roots[1], Store: s.roots[2], Room: room})
	if err != nil {
		return nil, err
	}
	cleanup.Keep()
	return s, nil
}

func (s *snapshots) Close() error {
	err := s.Store.Close()
	for _, root := range s.roots {
		err = errors.Join(err, root.Close())
	}
	return err
}

// ids returns the IDs of all templates.
func (s *Store) ids() (ids []string, err error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if IsID(e.Name()) && e.IsDir() {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}

// List returns all templates, the newest first. It skips unreadable ones; its error then describes
// them.
func (s *Store) List() (all []Template, err error) {
	ids, err := s.ids()
	for _, id := range ids {
		t, failed := s.look(id)
		switch {
		case errors.Is(failed, fs.ErrNotExist): // it was removed meanwhile
		case failed != nil:
			err = errors.Join(err, tool.Errorf(tool.Unavailable, "template %s can't be read; remove it with: wisbox template rm %s", id, id).Because(failed))
		default:
			all = append(all, t)
		}
	}
	s.forget(ids)
	slices.SortFunc(all, func(a, b Template) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID))
	})
	return all, err
}

// look reads a template without what it carries. It reads the file only after a change: a file may have many
// MiB, and is always replaced, never written to.
func (s *Store) look(id string) (Template, error) {
	file, err := os.Stat(filepath.Join(s.dir, id, recordFile)) // must come first, so that what is read isn't older
	if err != nil {
		return Template{}, err
	}
	s.mu.Lock()
	known, ok := s.known[id]
	s.mu.Unlock()
	if !ok || !os.SameFile(file, known.file) || !file.ModTime().Equal(known.file.ModTime()) || file.Size() != known.file.Size() {
		rec, err := s.read(id)
		if err != nil {
			return Template{}, err
		}
		known = listed{file, rec.Template}
		s.mu.Lock()
		s.known[id] = known
		s.mu.Unlock()
	}
	t := known.template
	t.Tags = slices.Clone(t.Tags)
	return t, nil
}

// forget forgets templates that no longer exist.
func (s *Store) forget(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) <= len(ids) {
		return
	}
	left := map[string]listed{}
	for _, id := range ids {
		if l, ok := s.known[id]; ok {
			left[id] = l
		}
	}
	s.known = left
}

func (s *Store) read(id string) (rec record, err error) {
	err = jsonfile.Read(filepath.Join(s.dir, id, recordFile), &rec)
	if err == nil && rec.ID != id {
		err = errors.New("its ID is not its directory's name")
	}
	return rec, err
}

// Find finds a template by its ID, or the newest of an owner by its name.
func (s *Store) Find(ref, owner string) (Template, error) {
	if IsID(ref) {
		t, err := s.look(ref)
		if errors.Is(err, fs.ErrNotExist) {
			return Template{}, missing(ref)
		}
		if err != nil {
			return Template{ID: ref}, tool.Errorf(tool.Unavailable, "template %s can't be read; remove it with: wisbox template rm %s", ref, ref).Because(err)
		}
		return t, nil
	}
	all, err := s.List()
	for _, t := range all {
		if t.Owner == owner && ref != "" && t.answers(ref) {
			return t, nil
		}
	}
	if err != nil { // an unreadable template of any owner must not affect others
		s.log.Warn("find a template by its name", "error", err)
	}
	return Template{}, missing(ref)
}

func missing(ref string) error {
	return tool.Errorf(tool.NotFound, "template %q not found; wisbox template list shows the templates", ref).In("template")
}

// Remove removes a template by its ID. It waits for sessions that are being created from it;
// existing ones don't need it.
func (s *Store) Remove(ctx context.Context, id string) error {
	if !IsID(id) {
		return missing(id)
	}
	path := filepath.Join(s.dir, id)
	if _, err := os.Lstat(path); err != nil {
		return missing(id)
	}
	unlock, err := locked(ctx, filepath.Join(path, lockFile), (*flock.Flock).TryLockContext, errInUse)
	if errors.Is(err, fs.ErrNotExist) {
		return missing(id)
	}
	if err != nil {
		return err
	}
	defer unlock()
	free, err := s.locked(ctx)
	if err != nil {
		return err
	}
	gone := filepath.Join(s.dir, gonePrefix+id)
	err = os.Rename(path, gone)
	free() // others need not wait for the rest
	if errors.Is(err, fs.ErrNotExist) {
		return missing(id)
	}
	if err == nil {
		err = os.RemoveAll(gone)
	}
	return err
}

// Used is a template that a session is being created from. It can't be removed before Close.
type Used struct {
	Template
	Extra map[string][]byte

	snapshot string
	store    *snapshots
	unlock   func()
}

// Use opens a template by its ID.
func (s *Store) Use(ctx context.Context, id string) (*Used, error) {
	if !IsID(id) {
		return nil, missing(id)
	}
	path := filepath.Join(s.dir, id)
	if _, err := os.Lstat(path); err != nil {
		return nil, missing(id)
	}
	var cleanup undo.Steps
	defer cleanup.Run()
	unlock, err := locked(ctx, filepath.Join(path, lockFile), (*flock.Flock).TryRLockContext, errInUse)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(id)
	}
	if err != nil {
		return nil, err
	}
	cleanup.Add(unlock)
	rec, err := s.read(id) // with the lock held: it may have been removed meanwhile
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(id)
	}
	if err != nil {
		return nil, tool.Errorf(tool.Unavailable, "template %s can't be read; remove it with: wisbox template rm %s", id, id).Because(err)
	}
	store, err := openSnapshots(path, nil)
	if err != nil {
		return nil, err
	}
	cleanup.Keep()
	return &Used{Template: rec.Template, Extra: rec.Extra, snapshot: rec.Snapshot, store: store, unlock: unlock}, nil
}

// FillInto copies the template's files into a new workspace.
func (u *Used) FillInto(ctx context.Context, to *snapshot.Store) error {
	_, err := u.store.CloneTo(ctx, u.snapshot, to)
	return err
}

// Close releases the template.
func (u *Used) Close() error {
	defer u.unlock()
	return u.store.Close()
}
