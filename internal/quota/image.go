package quota

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
)

const (
	blockSize   = 4096
	inodeSize   = 256
	groupBlocks = 8 * blockSize // of one block group, which one block of bits describes

	// reservedInodes are ext4's own inodes, including lost+found.
	reservedInodes = 11
	// bytesPerInode bounds the number of inodes of an image: a group of blocks can't hold many
	// more, and a small disk not their entries.
	bytesPerInode = 1024
	journalBlocks = 1024 // 4 MiB, the minimum of mkfs
	minJournaled  = 2048 // blocks; below that mkfs makes no journal
	minBlocks     = 256
)

// FormatImage writes an empty ext4 file system into a new file of mode 0600, which is sparse. It
// has room for limit.Bytes of files in addition to ext4's own data. It has a journal unless it is
// smaller than 4 MiB: without one, ext4 avoids recently deleted inodes for minutes and checks each
// of them for every new file, so that removing 100,000 files and creating them again takes 39 s
// instead of 3 s. A durable image is on the disk when FormatImage returns.
//
// The first image of a size takes some 5 ms, and later ones of the same process less than 1 ms:
// FormatImage keeps the formats of a few sizes in memory. Images of one format have the same UUID.
// It may be called concurrently. The error wraps [ErrUnable] if there is no mkfs.ext4 or if
// limit.Bytes is 0.
func FormatImage(ctx context.Context, path string, limit Limit, durable bool) error {
	if limit.Bytes <= 0 {
		return fmt.Errorf("%w: an image needs a size", ErrUnable)
	}
	inodes := imageInodes(limit)
	blocks := imageBlocks(limit.Bytes, inodes)
	journaled := blocks+journalBlocks >= minJournaled
	if journaled {
		blocks += journalBlocks
	}
	blank, done, err := formats.get(ctx, blocks*blockSize, formatArgs(inodes, journaled))
	if err != nil {
		return err
	}
	defer done()
	return save(path, blank, blocks*blockSize, durable)
}

// formats are the empty file systems of this process, each in memory of some 200 KiB. Their number is
// bounded, since a server's clients may choose the size.
var formats = blanks{max: 8}

type blanks struct {
	max int

	mu   sync.Mutex
	kept map[string]*os.File // by size and arguments
}

// get returns a file in memory with an empty file system. The caller must call done after its last
// use, and may only read the file, at offsets of its own: others read it too.
func (b *blanks) get(ctx context.Context, size int64, args []string) (blank *os.File, done func(), err error) {
	key := fmt.Sprint(size, args)
	if blank = b.find(key); blank != nil {
		return blank, func() {}, nil
	}
	if blank, err = inMemory(size); err != nil {
		return nil, nil, fmt.Errorf("%w: memory for a file system: %w", ErrUnable, err)
	}
	if err := format(ctx, blank, args); err != nil {
		return nil, nil, errors.Join(err, blank.Close())
	}
	if b.keep(key, blank) {
		return blank, func() {}, nil
	}
	return blank, func() { _ = blank.Close() }, nil
}

func (b *blanks) find(key string) *os.File {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kept[key]
}

// keep reports whether blank is kept for others, until the process ends.
func (b *blanks) keep(key string, blank *os.File) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept[key] != nil || len(b.kept) == b.max {
		return false
	}
	if b.kept == nil {
		b.kept = map[string]*os.File{}
	}
	b.kept[key] = blank
	return true
}

// format writes a file system into memory: mkfs flushes its file several times, which takes longer than
// the rest of its work if that is on a disk.
func format(ctx context.Context, blank *os.File, args []string) error {
	mkfs, err := findTool("mkfs.ext4")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnable, err)
	}
	cmd := exec.CommandContext(ctx, mkfs, append(args, "/proc/self/fd/3")...)
	cmd.Env, cmd.ExtraFiles = []string{"LC_ALL=C"}, []*os.File{blank}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: mkfs.ext4: %w: %.200q", ErrUnable, err, out)
	}
	return nil
}

func formatArgs(inodes int64, journaled bool) []string {
	features, args := "^resize_inode", []string{}
	if journaled {
		args = append(args, "-J", "size="+strconv.Itoa(journalBlocks*blockSize>>20))
	} else {
		features += ",^has_journal"
	}
	return append(args, "-q", "-F", "-b", strconv.Itoa(blockSize), "-I", strconv.Itoa(inodeSize), "-m", "0",
		"-N", strconv.FormatInt(inodes+reservedInodes, 10), "-O", features, "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard")
}

func imageInodes(limit Limit) int64 {
	most := max(limit.Bytes/bytesPerInode, 64)
	if limit.Inodes <= 0 {
		return min(most, limit.Bytes/16384+64)
	}
	return min(limit.Inodes, most)
}

// imageBlocks returns the size of an image with room for that much: ext4 needs the inodes' table
// and some blocks for each group, and withholds a fiftieth, but at most 4096 blocks, for its own
// metadata. A journal comes on top.
func imageBlocks(bytes, inodes int64) int64 {
	blocks := ceilDiv(bytes, blockSize) + ceilDiv(inodes*inodeSize, blockSize)
	blocks += 4*ceilDiv(blocks, groupBlocks) + 16
	blocks += min(blocks/49, groupBlocks/8)
	return max(blocks, minBlocks)
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// save writes what there is of a file of that size into a new one. If it fails it leaves nothing.
func save(path string, from *os.File, size int64, durable bool) error {
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(to.Truncate(size), copyData(to, from))
	if err == nil && durable {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// findTool looks on the PATH and in the directories of administrators' programs, which the PATH of
// users and of many services lacks.
func findTool(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", err
}
