// Package hostmount copies host files into a workspace. A mount is a copy, never a
// live view: programs change their copy, the source stays as it is, and later
// changes to the source don't show.
//
// A source is a file or directory below an allowed root, and its author may be
// hostile. So everything is opened relative to a descriptor of the source,
// without blocking, and checked once it is open: a link never copies anything from outside its source, with any options
// and even if it is swapped meanwhile; FIFOs, sockets and devices are skipped, and so are files with several hard links
// that belong to another user than the source. Permission bits and times are copied; set-id bits, owners and extended
// attributes are not. Names are copied unchanged, even unusual ones. Bytes and entries have a budget.
//
// All mounts are first copied together into a directory that no program sees
// and then moved in by rename: any error, and the end of the context, leave the
// workspace as it was.
//
// The package does not watch sources, copies nothing back, and takes no lock:
// the caller holds the workspace's write lock if others may change it meanwhile.
package hostmount
