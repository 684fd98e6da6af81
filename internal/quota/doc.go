// Package quota bounds what a directory may take of its file system: by a
// project quota, by an image file that is mounted in its place, or, where neither
// can be had, by counting ([Walk], [Unlinked]) what it takes.
//
// It knows ways, not policy: which of them a session uses, when it is counted and
// what happens at the limit is the caller's. The first two ways need root; whether
// they work is found out by trying them, since file systems, kernels and the
// containers that wisbox itself may run in differ too much to be asked.
package quota

import "errors"

// Limit is how much a directory may hold.
type Limit struct {
	Bytes  int64 // of blocks, not of file sizes; 0 is no limit
	Inodes int64 // files, directories, links and so on; 0 is no limit
}

// ErrUnable says that this host, or this user on it, can't have the way asked
// for. Nothing was changed; take another way.
var ErrUnable = errors.New("not possible on this host")
