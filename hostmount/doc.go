// Package hostmount copies files of the host into a workspace. A mount is a
// copy, never a live view: programs change theirs, the source stays, and what
// changes in the source later does not show.
//
// A source is a file or directory below an allowed root, and its author may be
// hostile. So everything is opened relative to a descriptor of the source,
// without blocking, and looked at once it is open: a link brings nothing from
// outside its source, whatever the options and however fast it is swapped;
// FIFOs, sockets and devices are skipped, and files with further hard links
// that belong to somebody else than the source does. Set-id bits, owners and
// extended attributes stay behind; permission bits and times come along. Names
// are copied as they are, odd ones too. Bytes and entries have a budget.
//
// All mounts are first copied together into a directory that no program sees
// and then moved in by rename: any error, and the end of the context, leave the
// workspace as it was.
//
// The package does not watch sources, copies nothing back, and takes no lock:
// the caller holds the workspace's write lock if others may change it meanwhile.
package hostmount
