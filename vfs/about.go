package vfs

// About explains to a model what the file tools are for.
const About = `File tools (ls, read_file, write_file, edit_file, glob, grep, rm) need no program and are the fastest way to read and change files.
Look around with ls first, and list only the directories that you need. Read a file before you change it, and go on from the version that the last result names, so that no edit is stale. Keep edits concise and binary files small, and write a file once rather than in many appends. Don't copy large repositories or binaries into the workspace: they fill its disk and slow down snapshots.`
