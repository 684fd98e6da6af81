package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/wisbox/wisbox/internal/quota"
	"github.com/wisbox/wisbox/tool"
)

const (
	diskDir   = "disk"     // where the image is mounted; workspace/ and tmp/ are in it
	imageFile = "disk.img" // the image
	newImage  = "disk.img.new"
)

// DiskWay is what keeps a session within its limits of bytes and entries.
type DiskWay string

const (
	DiskProject DiskWay = "project" // a project quota of the file system
	DiskImage   DiskWay = "image"   // a mounted image that has no more
	DiskWatch   DiskWay = "watch"   // [Dir.WatchDisk] and [Dir.Room] count
)

// Disk is a session's share of the disk, as it is recorded.
type Disk struct {
	Bytes   int64   `json:"bytes,omitempty"`
	Inodes  int64   `json:"inodes,omitempty"`
	Way     DiskWay `json:"way"`
	Project uint32  `json:"project,omitempty"` // of DiskProject
}

func (k Disk) limit() quota.Limit { return quota.Limit{Bytes: k.Bytes, Inodes: k.Inodes} }

// DiskLimit is one limit of a session's disk and what keeps it.
type DiskLimit struct {
	Name     string `json:"name"`  // disk, inodes
	Asked    int64  `json:"asked"` // bytes, entries
	Enforced bool   `json:"enforced"`
	By       string `json:"by"`
}

// DiskState reports which limits the session's files have, none where it was made
// without.
func (d *Dir) DiskState() []DiskLimit {
	disk := d.State().Disk
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

// at is where a directory of the session's files is, below the session's own.
func (d *Dir) at(name string) string {
	if d.imaged {
		return diskDir + "/" + name
	}
	return name
}

// makeFiles makes workspace/ and tmp/ with the strictest limit that can be had.
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
	case d.imaged: // whole from now on, see isHalfMade
		err = d.dir.Rename(newImage, imageFile)
		_ = d.dir.Symlink(d.at(workspaceDir), workspaceDir) // for people who look there
	case d.store.able(DiskProject):
		err = d.tryProject(disk)
	}
	return pin, disk, err
}

// able: only root may set quotas and mount. Tests rule out more.
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
		dir, err := d.dir.Open(d.at(name))
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

// tryImage mounts a new image, where there are no project quotas. A host that
// can't have one is left as it was.
func (d *Dir) tryImage(ctx context.Context, disk *Disk, kept bool) error {
	if !d.store.able(DiskImage) || d.store.able(DiskProject) && quota.HasProjects(d.dir) {
		return nil
	}
	if err := d.dir.Mkdir(diskDir, 0o700); err != nil {
		return err
	}
	err := quota.FormatImage(ctx, d.hostPath(newImage), disk.limit())
	d.store.step("create.formatted")
	if err == nil {
		err = quota.MountImage(d.hostPath(newImage), d.hostPath(diskDir), kept)
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

// mountDisk mounts the session's image where it isn't any more: after a reboot,
// or when a person unmounted it. That person has the files alone.
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
	if err := quota.MountImage(d.hostPath(imageFile), d.hostPath(diskDir), kept); err != nil {
		return tool.Errorf(tool.Unavailable, "the disk of session %q can't be mounted; that needs root and a loop device, as when it was made", d.id).In("session").Because(err)
	}
	d.clearTmp()
	return nil
}

// unmountAlone unmounts the session's image when its last client leaves, so that
// a session in nobody's use is nothing but files. Where that can't be, the next
// to leave does it, or Remove.
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

// unmountDisk frees what a session in the trash has mounted.
func (s *Store) unmountDisk(ctx context.Context, entry string) error {
	return quota.Unmount(ctx, s.path+"/"+trashDir+"/"+entry+"/"+diskDir)
}

// freeQuota ends the project quota of a session that goes.
func freeQuota(session *os.Root, state State) {
	if state.Disk == nil || state.Disk.Way != DiskProject {
		return
	}
	if dir, err := session.Open("."); err == nil {
		_ = quota.FreeProject(dir, state.Disk.Project) // an empty project's limits harm nobody
		_ = dir.Close()
	}
}

// joinQuota puts a new workspace under the quota of the one that it replaces.
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
