// Package filewire is the protocol between the host and the agent's files mode, a
// program that works on files with a program's rights: its messages and their limits.
// Both ends import it, so it uses the standard library only.
//
// The stdin and stdout of the files mode are frames, numbers are big-endian:
//
//	type u8 | length u32 | payload of length bytes, at most 64 KiB
//
// One operation follows the other. To the files mode:
//
//	'Q' ask      JSON ([Ask]), the first frame of each operation
//	'D' data     the next bytes of a file that is written
//	'E' end      the file is whole
//	'S' stop     it will not be: nothing is to stay of it
//
// To the host:
//
//	'N' item     JSON ([Item]): one file
//	'D' data     the next bytes of a file that is read
//	'V' event    JSON ([Event]): one change
//	'X' ended    JSON ([Ended]), the last frame of each operation
//
// Frames of each operation, in order:
//
//	stat         N X
//	list         N… X, depth first, by name, a directory before what it holds
//	read         N D… X, the item is that of the opened file
//	write        (D… then E or S, to the files mode) X; X may come before the E or S
//	watch        N V… X, the item says that the watch has begun
//	move, remove, mkdir, chmod    X
//
// A read or a watch that is no longer wanted has no frame: the host ends the process.
// The host treats this end as hostile: what doesn't fit ends the process, too.
package filewire
