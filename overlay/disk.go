package overlay

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"

	units "github.com/docker/go-units"

	"github.com/wisbox/wisbox/internal/quota"
	"github.com/wisbox/wisbox/tool/answer"
)

const (
	diskDir   = "disk"     // mount point of the image, which contains workspace/ and tmp/
	imageFile = "disk.img" // the image
	newImage  = "disk.img.new"
)

// DiskWay is the mechanism that enforces a session's limits of bytes and entries.
type DiskWay string

const (
	DiskProject DiskWay = "project" // a project quota of the file system
	DiskImage   DiskWay = "image"   // a mounted image of that size
	DiskWatch   DiskWay = "watch"   // [Dir.WatchDisk] and [Dir.Room] count files
)

// Disk is the recorded state of a session's disk limits.
type Disk struct {
	Bytes   int64   `json:"bytes,omitempty"`
	Inodes  int64   `json:"inodes,omitempty"`
	Way     DiskWay `json:"way"`
	Project uint32  `json:"project,omitempty"` // of DiskProject
}

func (k Disk) limit() quota.Limit { return quota.Limit{Bytes: k.Bytes, Inodes: k.Inodes} }

// DiskLimit is one limit of a session's disk and its mechanism.
type DiskLimit struct {
	Name     string `json:"name"`  // disk, inodes
	Asked    int64  `json:"asked"` // bytes, entries
	Enforced bool   `json:"enforced"`
	By       string `json:"by"`
}

// DiskState returns the limits of the session's files, none if the session was created without.
func (d *Dir) DiskState() []DiskLimit {
	disk := d.Current().Disk
	if disk == nil {
		return nil
	}
	by := map[DiskWay]string{
		DiskProject: "project quota",
		DiskImage:   "a mounted image of that size",
		DiskWatch:   "a watcher that ends programs",
	}[disk.Way]
	var limits []DiskLimit
	if disk.Bytes > 0 {
		limits = append(limits, DiskLimit{"disk", disk.Bytes, by != "", by})
	}
	if disk.Inodes > 0 {
		limits = append(limits, DiskLimit{"inodes", disk.Inodes, by != "", by})
	}
	return limits
}

// ResizeDisk changes the limits of the session's files, 0 leaves one as it is, and records them together with what
// settle changes in the record. After an error, nothing has changed. If the process is killed, the session has all of
// the old values or all of the new ones: the record names the new ones first, and the next [Store.Open] enforces them.
func (d *Dir) ResizeDisk(ctx context.Context, bytes, inodes int64, settle func(*State) error) error {
	old := d.Current().Disk
	if bytes == 0 && inodes == 0 {
		return d.Update(ctx, settle)
	}
	if old == nil {
		return answer.Errorf(answer.Unsupported, "the session was created without a disk limit, and can't get one").In("disk")
	}
	disk := *old
	disk.Bytes, disk.Inodes = cmp.Or(bytes, disk.Bytes), cmp.Or(inodes, disk.Inodes)
	if disk == *old {
		return d.Update(ctx, settle)
	}
	if err := errors.Join(d.fits(ctx, disk), growsOnly(disk, *old)); err != nil {
		return err
	}
	unlock, err := d.guard.lock(ctx, "the session's record is being written by another process; try again")
	if err != nil {
		return ioError(err, "lock the session's record")
	}
	defer unlock()
	d.store.step("resize.begin")
	err = d.rewrite(func(s *State) error {
		s.Former = &Former{Disk: s.Disk, Settings: s.Settings}
		s.Disk = &disk
		return settle(s)
	}, true)
	if err != nil {
		return err
	}
	d.store.step("resize.recorded")
	return d.enforceDisk()
}

// enforceDisk enforces the recorded limits, and completes the record; if that fails, the former values come back. The
// caller holds the record's lock.
func (d *Dir) enforceDisk() error {
	former, disk := d.State().Former, *d.State().Disk
	var err error
	switch disk.Way {
	case DiskImage:
		err = d.growImage(&disk)
	case DiskProject:
		err = d.resizeProject(disk)
	}
	d.store.step("resize.enforced")
	if err == nil {
		err = d.rewrite(func(s *State) error { s.Disk, s.Former = &disk, nil; return nil }, true)
	}
	if err == nil {
		return nil
	}
	if former.Disk.Way == DiskProject {
		err = errors.Join(err, d.resizeProject(*former.Disk))
	}
	return errors.Join(err, d.rewrite(func(s *State) error {
		s.Disk, s.Settings, s.Former = former.Disk, former.Settings, nil
		return nil
	}, true))
}

// finishResize completes the work of a killed ResizeDisk. If it can't, the next open tries again.
func (d *Dir) finishResize(ctx context.Context) {
	unlock, err := d.guard.lock(ctx, "")
	if err != nil {
		return // that of a living one goes on
	}
	defer unlock()
	if state, err := d.Reload(); err == nil && state.Former != nil {
		_ = d.enforceDisk() // the limits are the former ones then
	}
}

// fits refuses limits that the session's files exceed.
func (d *Dir) fits(ctx context.Context, disk Disk) error {
	taken, err := d.measure(ctx, true)
	if err != nil {
		return ioError(err, "count the session's files")
	}
	switch {
	case disk.Bytes > 0 && taken.Bytes > disk.Bytes:
		return answer.Errorf(answer.Conflict, "the session's files take %s, more than %s; remove some first", units.BytesSize(float64(taken.Bytes)), units.BytesSize(float64(disk.Bytes))).In("disk")
	case disk.Inodes > 0 && taken.Inodes > disk.Inodes:
		return answer.Errorf(answer.Conflict, "the session has %d files and directories, more than %d; remove some first", taken.Inodes, disk.Inodes).In("inodes")
	}
	return nil
}

const anotherSession = "; make another session for it: wisbox save this one, and load it with the new limits"

// growsOnly refuses what an image can't change.
func growsOnly(disk, old Disk) error {
	switch {
	case disk.Way != DiskImage:
	case disk.Inodes != old.Inodes:
		return answer.Errorf(answer.Unsupported, "inodes can't change: this session's disk is an image, which has its entries from the start"+anotherSession).In("inodes")
	case disk.Bytes < old.Bytes:
		return answer.Errorf(answer.Unsupported, "disk can't become smaller: this session's disk is an image, which only grows"+anotherSession).In("disk")
	}
	return nil
}

// growImage also sets the number of entries, which grows with an image.
func (d *Dir) growImage(disk *Disk) error {
	inodes, err := quota.GrowImage(d.hostPath(imageFile), d.hostPath(diskDir), disk.Bytes)
	if errors.Is(err, quota.ErrUnable) {
		return answer.Errorf(answer.Unsupported, "disk can't grow: this session's disk is an image, and this host doesn't let ext4 grow (it needs root with CAP_SYS_RESOURCE)"+anotherSession).In("disk").Because(err)
	}
	if err == nil && disk.Inodes > 0 {
		disk.Inodes = inodes
	}
	return ioError(err, "grow the session's disk")
}

func (d *Dir) resizeProject(disk Disk) error {
	dirs, err := d.fileDirs()
	if err != nil {
		return ioError(err, "open the session's files")
	}
	defer closeAll(dirs)
	return ioError(quota.SetLimit(disk.Project, disk.limit(), dirs...), "change the session's quota")
}

// at returns the path of a directory of the session's files, relative to the session's directory.
func (d *Dir) at(name string) string {
	if d.imaged {
		return diskDir + "/" + name
	}
	return name
}

// makeFiles makes workspace/ and tmp/ with the strictest limit that works.
func (d *Dir) makeFiles(ctx context.Context, o CreateOptions) (Pin, *Disk, error) {
	if o.Disk <= 0 && o.Inodes <= 0 {
		pin, err := d.makeDirs(o.Owner)
		return pin, nil, err
	}
	disk := &Disk{Bytes: max(o.Disk, 0), Inodes: max(o.Inodes, 0), Way: DiskWatch}
	if err := d.tryImage(ctx, disk, o.Kept); err != nil {
		return Pin{}, nil, err
	}
	pin, err := d.makeDirs(o.Owner)
	switch {
	case err != nil:
	case d.imaged: // complete from now on, see isHalfMade
		err = d.dir.Rename(newImage, imageFile)
		_ = d.dir.Symlink(d.at(workspaceDir), workspaceDir) // for users who look there
	case d.store.able(DiskProject):
		err = d.tryProject(disk)
	}
	return pin, disk, err
}

// able reports whether a mechanism is possible: only root may set quotas and mount. Tests exclude more.
func (s *Store) able(way DiskWay) bool {
	return os.Geteuid() == 0 && !s.without[way]
}

func (d *Dir) tryProject(disk *Disk) error {
	dirs, err := d.fileDirs()
	if err != nil {
		return err
	}
	defer closeAll(dirs)
	project, err := quota.SetProject(disk.limit(), dirs...)
	if errors.Is(err, quota.ErrUnable) {
		return nil
	}
	if err == nil {
		disk.Way, disk.Project = DiskProject, project
	}
	return err
}

// fileDirs opens the directories whose content counts.
func (d *Dir) fileDirs() ([]*os.File, error) {
	var dirs []*os.File
	for _, name := range []string{workspaceDir, tmpDir} {
		dir, err := d.files().Open(d.at(name))
		if err != nil {
			closeAll(dirs)
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

func closeAll(dirs []*os.File) {
	for _, dir := range dirs {
		_ = dir.Close()
	}
}

// tryImage mounts a new image, if there are no project quotas. If the host doesn't support that, it leaves nothing
// behind.
func (d *Dir) tryImage(ctx context.Context, disk *Disk, kept bool) error {
	if !d.store.able(DiskImage) || d.store.able(DiskProject) && quota.HasProjects(d.dir) {
		return nil
	}
	if err := d.dir.Mkdir(diskDir, 0o700); err != nil {
		return err
	}
	err := quota.FormatImage(ctx, d.hostPath(newImage), disk.limit(), kept)
	d.store.step("create.formatted")
	if err == nil {
		err = quota.MountImage(d.hostPath(newImage), d.hostPath(diskDir), quota.Mounting{Durable: kept, New: true})
	}
	d.store.step("create.mounted")
	if errors.Is(err, quota.ErrUnable) {
		return d.forgetImage(ctx)
	}
	if err == nil {
		disk.Way, d.imaged = DiskImage, true
	}
	return err
}

func (d *Dir) forgetImage(ctx context.Context) error {
	err := d.dir.Remove(newImage)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, ctx.Err(), d.dir.Remove(diskDir))
}

// mountDisk mounts the session's image if it isn't mounted any more, after a reboot or because somebody unmounted it.
func (d *Dir) mountDisk(ctx context.Context, kept bool) error {
	if !d.imaged || quota.IsMounted(d.hostPath(diskDir)) {
		return nil
	}
	unlock, err := d.guard.lock(ctx, "the session's disk is being mounted by another process; try again")
	if err != nil {
		return ioError(err, "lock the session's disk")
	}
	defer unlock()
	if quota.IsMounted(d.hostPath(diskDir)) {
		return nil
	}
	if err := quota.MountImage(d.hostPath(imageFile), d.hostPath(diskDir), quota.Mounting{Durable: kept}); err != nil {
		if full := d.Reserve(ctx); answer.KindOf(full) == answer.NoSpace {
			return answer.Errorf(answer.NoSpace, "the disk of session %q can't be mounted: %s", d.id, answer.AsError(full).Message).In("session").Because(err)
		}
		return answer.Errorf(answer.Unavailable, "the disk of session %q can't be mounted; that needs root and a loop device, as when it was made", d.id).In("session").Because(err)
	}
	d.clearTmp()
	return nil
}

// unmountAlone unmounts the session's image when its last client leaves, so that an unused session consists only of
// files. If that fails, the next client that leaves does it, or Remove.
func (d *Dir) unmountAlone() {
	if !d.imaged {
		return
	}
	if alone, _ := d.life.TryLock(); !alone {
		return
	}
	defer d.life.Unlock()
	if d.isCurrent() {
		_ = quota.TryUnmount(d.hostPath(diskDir))
	}
}

// unmountDisk unmounts the image of a session in the trash.
func (s *Store) unmountDisk(ctx context.Context, entry string) error {
	return quota.Unmount(ctx, s.path+"/"+trashDir+"/"+entry+"/"+diskDir)
}

// freeQuota ends the project quota of a session that is being removed.
func freeQuota(session *os.Root, state State) {
	if state.Disk == nil || state.Disk.Way != DiskProject {
		return
	}
	if dir, err := session.Open("."); err == nil {
		_ = quota.FreeProject(dir, state.Disk.Project) // an empty project's limits are harmless
		_ = dir.Close()
	}
}

// joinQuota gives a new workspace the quota of the one that it replaces.
func (d *Dir) joinQuota(name string) error {
	disk := d.State().Disk
	if disk == nil || disk.Way != DiskProject {
		return nil
	}
	dir, err := d.dir.Open(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return quota.Assign(dir, disk.Project)
}
