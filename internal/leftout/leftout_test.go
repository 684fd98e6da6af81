package leftout_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/internal/leftout"
)

func TestEverySpellingOfADirectoryIsRecognised(t *testing.T) {
	for _, path := range []string{
		".git", ".git/config", "a/.git/hooks/x", ".GIT", ".gIt ", ".git.", ".git. .", "GIT~1", "a/git~1/x", ".git::$INDEX_ALLOCATION", ".g\u200cit", ".gi\ufefft/x",
		".g\u00adit", ".gi\u2060t", ".\ufe0fgit/config", "\U000e0020.git", ".\u017fvn/wc.db", "_darc\u017f", ".repo/repo/main.py", "_FOSSIL_", "_svn/wc.db", ".fslckout",
		".hg/hgrc", ".HG", "hg~1/hgrc", ".jj/repo/config.toml", ".bzr/branch/branch.conf", "_darcs/prefs/defaults", "_DARCS.", ".svn/wc.db", "SVN~1", ".sl/config", ".pijul/config", "a/CVS/Update.prog", "_MTN/monotonerc", ".bk/config", "BitKeeper/triggers/x",
	} {
		assert.True(t, leftout.VersionControl(path), path)
	}
	for _, path := range []string{"", "git", "x.git", ".github/workflows/x", ".gitignore", ".gitattributes", "darcs", ".hgignore", "a.git/config", "git~2", ".gitx", ".hgtags", "a/b", "data/cvs/jo.pdf", "CVSROOT"} {
		assert.False(t, leftout.VersionControl(path), path)
	}
	for _, path := range []string{".git/config", ".wisbox-apply-x/y", "a/.Wisbox-Apply-x"} {
		assert.NotEmpty(t, leftout.Why(path), path)
	}
	assert.Empty(t, leftout.Why("a/wisbox-apply-x"))
}

// TestNoFileMakesARepositoryOfItsDirectory: git takes a directory with HEAD, objects and refs for a repository, even
// without .git, and runs the programs that its config names.
func TestNoFileMakesARepositoryOfItsDirectory(t *testing.T) {
	for _, path := range []string{"HEAD", "a/b/HEAD", "head", "x.git/Head", "HE\u200cAD", ".git/config", "HEAD."} {
		assert.NotEmpty(t, leftout.File(path), path)
	}
	for _, path := range []string{"HEAD/index.js", "head.html", "AHEAD", "a/config", "objects/pack"} {
		assert.Empty(t, leftout.File(path), path)
	}
}
