package profile

// About explains to a model how a profile's tools work together, by their names in that profile; it
// is "" for "wisbox", which wisbox itself explains.
func About(name string) string { return about[name] }

var about = map[string]string{
	"vfs": `list_directory is ls and delete_file is rm, under the names that older prompts have.`,
	"anthropic": `bash runs commands in a shell that stays between calls, with its directory and variables; restart gives a new one. str_replace_based_edit_tool views, creates and edits text files without it.
When you are done, delete the files that nobody needs and end what you have left running, with bash.`,
	"openai": `shell runs bash scripts, each in a fresh shell, and nothing that they start outlives the call. apply_patch adds, updates, moves and deletes files: if a part of a patch doesn't fit, nothing is changed.
When you are done, delete the files that nobody needs.`,
	"deepagents": `ls, read_file, write_file, edit_file, glob and grep work on files without a program: write_file creates new ones, edit_file changes them. Their results give a file's version, a number that grows with each change, whoever made it. execute runs a bash script, and nothing that it starts outlives the call.
When you are done, delete the files that nobody needs, with execute.`,
}
