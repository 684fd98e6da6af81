// Package overlay keeps sessions as directories on the host. A session's state is only on disk, so
// any process of the same user can find the session, use it, end it, and clean up after a process
// that was killed.
//
//	ROOT/root.json                 the random id of this state root
//	ROOT/root.lock                 guards the creation of root.json and of sessions
//	ROOT/trash/                    sessions that are being removed
//	ROOT/sessions/ID/session.json  the session's [State]
//	                 workspace/    the directory of programs, which may change it freely
//	                 tmp/          same file system, unseen by programs: staging
//	                 disk.img      if an image enforces the disk limit: that image,
//	                 disk/         and its mount point, which then contains the two above
//	                 snapshots/    output/  log.jsonl
//	                 life.lock     shared while a [Dir] is open, exclusive to delete
//	                 write.lock    exclusive for each change by the file tools
//	                 state.lock    held for the moment that session.json is rewritten
//
// Locks are flocks: they belong to an open file, so they always end with their process, and a reused process ID is
// harmless. Only life.lock decides whether a session is in use; clocks decide only the age of kept sessions that nobody
// has open.
//
// The package knows nothing of containers or file tools. It hands out *os.Root
// values, and enters a workspace only to delete it.
package overlay
