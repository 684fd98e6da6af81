package sshd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Bounds of one SFTP channel. A session has few file streams for all its clients.
const (
	maxOpen   = 64      // files and directories
	maxReads  = 1       // streams for reading; a later read opens a closed one again
	maxWrites = 2       // files being written
	maxListed = 100_000 // entries of open directories
	umask     = 0o022
	maxAhead  = 512 << 10 // bytes of a file kept for reads in another order
	maxEarly  = 2 << 20   // bytes of a file that wait for earlier ones; 64 pieces of OpenSSH
	perPiece  = 64        // overhead of a piece in bytes
)

// serveSFTP serves files until the client ends its stream.
func serveSFTP(ctx context.Context, ch ssh.Channel, opts *Options) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := &filer{ctx: ctx, files: brief{opts.Session.Inside(), opts.times.operation}, times: opts.times, alone: opts.OneAtATime, uploads: map[string]*upload{}}
	f.moved = sync.NewCond(&f.writes)
	handlers := sftp.Handlers{FileGet: f, FilePut: f, FileCmd: f, FileList: f}
	_ = sftp.NewRequestServer(newFrames(ctx, ch), handlers, sftp.WithStartDirectory(sandbox.WorkspaceDir)).Serve() // its error is the client's end
}

// filer adapts the files of a session to the SFTP library.
type filer struct {
	ctx   context.Context
	files sandbox.FileSystem
	times times
	alone bool // changes wait for each other

	reads   sync.Mutex  // locked before mu
	reading []*download // downloads with a stream, the oldest first

	mu      sync.Mutex
	open    int                // files and directories
	listed  int                // entries of directories
	uploads map[string]*upload // open uploads, by path

	writes  sync.Mutex // locked before mu
	moved   *sync.Cond // signalled when an upload has progressed, or has ended
	pieces  int        // number of signals
	waiting int        // workers of the library that wait since the last signal
}

// refusal is an error with one of SFTP's codes and our own text.
type refusal struct {
	code error
	text string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.code }

func refuse(code error, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// asSFTP adds the SFTP code to an error of a file system.
func asSFTP(err error) error {
	own := (*refusal)(nil)
	if err == nil || errors.Is(err, io.EOF) || errors.As(err, &own) {
		return err
	}
	said, code := tool.AsError(err), sftp.ErrSSHFxFailure
	switch {
	case said.Kind == tool.NotFound, errors.Is(err, fs.ErrNotExist):
		code = sftp.ErrSSHFxNoSuchFile
	case said.Kind == tool.Permission, errors.Is(err, fs.ErrPermission):
		code = sftp.ErrSSHFxPermissionDenied
	case said.Kind == tool.Unsupported:
		code = sftp.ErrSSHFxOpUnsupported
	}
	return &refusal{code, said.Message}
}

// enter counts an open file or directory.
func (f *filer) enter() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == maxOpen {
		return refuse(sftp.ErrSSHFxFailure, "%d files and directories are open, the maximum; close some first", maxOpen)
	}
	f.open++
	return nil
}

func (f *filer) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open--
}

// Fileread implements [sftp.FileReader].
func (f *filer) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	info, err := f.files.Stat(f.ctx, r.Filepath, sandbox.StatOptions{Follow: true})
	if err != nil {
		return nil, asSFTP(err)
	}
	if !info.Mode.IsRegular() {
		return nil, refuse(sftp.ErrSSHFxFailure, "%s is not a regular file", r.Filepath)
	}
	if err := f.enter(); err != nil {
		return nil, err
	}
	return &download{f: f, path: r.Filepath}, nil
}

// Filewrite implements [sftp.FileWriter].
func (f *filer) Filewrite(r *sftp.Request) (io.WriterAt, error) { return f.OpenFile(r) }

// OpenFile implements [sftp.OpenFileWriter].
func (f *filer) OpenFile(r *sftp.Request) (sftp.WriterAtReaderAt, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	u, err := f.newUpload(r)
	if err != nil {
		f.leave()
		return nil, asSFTP(err)
	}
	return &readWriter{u, &download{f: f, path: r.Filepath}}, nil
}

// Filecmd implements [sftp.FileCmder].
func (f *filer) Filecmd(r *sftp.Request) error {
	if r.Method != "Setstat" {
		if err := f.mayChange(); err != nil {
			return err
		}
	}
	return asSFTP(f.command(r))
}

// mayChange refuses a change that would have to wait for a file that is being written, because the
// client's next pieces would wait behind it.
func (f *filer) mayChange() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.alone && len(f.uploads) > 0 {
		return errAlone
	}
	return nil
}

var errAlone = refuse(sftp.ErrSSHFxFailure, "this session rolls failed calls back, so it takes one change at a time: close the file first")

// PosixRename implements [sftp.PosixRenameFileCmder]: it replaces an existing file.
func (f *filer) PosixRename(r *sftp.Request) error {
	if err := f.mayChange(); err != nil {
		return err
	}
	return asSFTP(f.files.Move(f.ctx, r.Filepath, r.Target, sandbox.MoveOptions{}))
}

func (f *filer) command(r *sftp.Request) error {
	switch r.Method {
	case "Setstat":
		return f.setStat(r)
	case "Rename":
		return f.files.Move(f.ctx, r.Filepath, r.Target, sandbox.MoveOptions{Exclusive: true})
	case "Mkdir":
		return f.files.Mkdir(f.ctx, r.Filepath, sandbox.MkdirOptions{})
	case "Remove", "Rmdir":
		return f.remove(r)
	case "Symlink", "Link":
		return refuse(sftp.ErrSSHFxOpUnsupported, "wisbox makes no links over SFTP; use: ssh HOST ln -s TARGET NAME")
	}
	return sftp.ErrSSHFxOpUnsupported
}

// remove removes a file of the kind that the request is for.
func (f *filer) remove(r *sftp.Request) error {
	info, err := f.files.Stat(f.ctx, r.Filepath, sandbox.StatOptions{})
	if err != nil {
		return err
	}
	switch dir := info.Mode.IsDir(); {
	case dir && r.Method == "Remove":
		return refuse(sftp.ErrSSHFxFailure, "%s is a directory", r.Filepath)
	case !dir && r.Method == "Rmdir":
		return refuse(sftp.ErrSSHFxFailure, "%s is not a directory", r.Filepath)
	}
	return f.files.Remove(f.ctx, r.Filepath, sandbox.RemoveOptions{})
}

// setStat sets permissions. It accepts times but ignores them, because clients that copy files send
// them with each file. Owners and sizes must not change.
func (f *filer) setStat(r *sftp.Request) error {
	has, want := r.AttrFlags(), r.Attributes()
	if want == nil {
		return refuse(sftp.ErrSSHFxBadMessage, "the attributes are incomplete")
	}
	if u := f.upload(r.Filepath); u != nil {
		return u.setStat(has, want)
	}
	if has.UidGid || has.Size {
		info, err := f.files.Stat(f.ctx, r.Filepath, sandbox.StatOptions{Follow: true})
		if err != nil {
			return err
		}
		if has.UidGid && (int64(want.UID) != int64(info.UID) || int64(want.GID) != int64(info.GID)) {
			return refuse(sftp.ErrSSHFxPermissionDenied, "a file's owner can't be changed")
		}
		if has.Size && want.Size != uint64(info.Size) {
			return refuse(sftp.ErrSSHFxOpUnsupported, "the size of a file that is not being written can't be changed; use: ssh HOST truncate")
		}
	}
	if has.Permissions {
		if err := f.mayChange(); err != nil {
			return err
		}
		return f.files.Chmod(f.ctx, r.Filepath, want.FileMode().Perm())
	}
	return nil
}

func (f *filer) upload(path string) *upload {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.uploads[path]
}

// Filelist implements [sftp.FileLister].
func (f *filer) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if r.Method == "List" {
		l, err := f.list(r.Filepath)
		return l, asSFTP(err)
	}
	return f.stat(r.Filepath, true)
}

// Lstat implements [sftp.LstatFileLister].
func (f *filer) Lstat(r *sftp.Request) (sftp.ListerAt, error) { return f.stat(r.Filepath, false) }

// stat describes a file; for a new file that is being written, it describes the bytes received.
func (f *filer) stat(at string, follow bool) (sftp.ListerAt, error) {
	info, err := f.files.Stat(f.ctx, at, sandbox.StatOptions{Follow: follow})
	if u := f.upload(at); err != nil && u != nil {
		info, err = u.info(), nil
	}
	if err != nil {
		return nil, asSFTP(err)
	}
	return &entries{all: []fs.FileInfo{entry{path.Base(at), info}}}, nil
}

// Readlink implements [sftp.ReadlinkFileLister].
func (f *filer) Readlink(at string) (string, error) {
	info, err := f.files.Stat(f.ctx, at, sandbox.StatOptions{})
	if err == nil && info.Mode&fs.ModeSymlink == 0 {
		err = refuse(sftp.ErrSSHFxFailure, "%s is not a symbolic link", at)
	}
	return info.Link, asSFTP(err)
}

// LookupUserName and LookupGroupName implement [sftp.NameLookupFileLister].
func (f *filer) LookupUserName(id string) string  { return nameOf(id) }
func (f *filer) LookupGroupName(id string) string { return nameOf(id) }

func nameOf(id string) string {
	switch id {
	case "0":
		return "root"
	case fmt.Sprint(sandbox.UserID):
		return "user"
	}
	return id
}

func (f *filer) list(at string) (*entries, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	l := &entries{f: f}
	err := f.files.List(f.ctx, at, sandbox.ListOptions{}, func(info sandbox.FileInfo) error {
		if !f.takeEntry() {
			return refuse(sftp.ErrSSHFxFailure, "the directories that are open have more than %d entries; list this one with: ssh HOST ls", maxListed)
		}
		l.all = append(l.all, entry{info.Path, info})
		return nil
	})
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

func (f *filer) takeEntry() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listed == maxListed {
		return false
	}
	f.listed++
	return true
}

// entries is the information about some files.
type entries struct {
	f   *filer // nil for a single file
	all []fs.FileInfo
}

// ListAt implements [sftp.ListerAt].
func (l *entries) ListAt(into []os.FileInfo, from int64) (int, error) {
	if from >= int64(len(l.all)) {
		return 0, io.EOF
	}
	return copy(into, l.all[from:]), nil
}

// Close forgets a directory.
func (l *entries) Close() error {
	if l.f != nil {
		l.f.mu.Lock()
		defer l.f.mu.Unlock()
		l.f.open--
		l.f.listed -= len(l.all)
		l.f, l.all = nil, nil
	}
	return nil
}

// entry adapts a file to the library.
type entry struct {
	name string
	info sandbox.FileInfo
}

func (e entry) Name() string       { return e.name }
func (e entry) Size() int64        { return e.info.Size }
func (e entry) Mode() fs.FileMode  { return e.info.Mode }
func (e entry) ModTime() time.Time { return e.info.Modified }
func (e entry) IsDir() bool        { return e.info.Mode.IsDir() }
func (e entry) Sys() any           { return nil }
func (e entry) Uid() uint32        { return uint32(e.info.UID) }
func (e entry) Gid() uint32        { return uint32(e.info.GID) }
