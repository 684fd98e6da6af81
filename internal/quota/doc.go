// Package quota bounds the disk space of a directory: by a project quota, by an image file that is
// mounted in its place, or, if neither works, by counting its files ([Walk], [Unlinked]).
//
// It has the mechanisms, not the policy: the caller chooses one of them, when to count, and the
// reaction to the limit. The first two need root. The package tries whether they work, since file
// systems, kernels and the containers in which wisbox itself may run differ too much to be queried.
package quota

import "errors"

// Limit is the amount that a directory may hold.
type Limit struct {
	Bytes  int64 // of blocks, not of file sizes; 0 means no limit
	Inodes int64 // files, directories, links and so on; 0 means no limit
}

// ErrUnable means that this host, or this user on it, can't use the requested mechanism. Nothing
// was changed; use another one.
var ErrUnable = errors.New("not possible on this host")
