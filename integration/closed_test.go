package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestAClosedNetworkSaysHowToOpenIt wherever a program or code failed to reach another host.
func TestAClosedNetworkSaysHowToOpenIt(t *testing.T) {
	h := newHome(t)
	_, errs, code := command(t, h.cache, "run", "--", "curl", "-sS", "https://pypi.org")
	assert.Equal(t, 6, code)
	assert.Contains(t, errs, "\nwisbox: this session has no network; to allow PyPI: --allow python\n")
	h.do("session", "create", "box")
	const want = "this session has no network; to allow PyPI: wisbox allow box python"
	_, errs, _ = command(t, h.cache, "exec", "box", "--", "pip", "download", "six")
	assert.Contains(t, errs, "\nwisbox: "+want+"\n")
	out, _, _ := command(t, h.cache, "exec", "--json", "box", "--", "curl", "-sS", "https://pypi.org")
	assert.Contains(t, out, `"notices":["`+want+`"]`)
	assert.Contains(t, h.do("call", "box", "shell_execute", `{"commands": ["curl", "-sS", "https://pypi.org"]}`), `"notices":["`+want+`"]`)
	assert.Contains(t, h.do("call", "box", "evaluate_python", `{"code": "import urllib.request as u; u.urlopen('https://pypi.org')", "timeout": 5}`),
		"this session has no network; to allow a host: wisbox allow box HOST")
	id := h.detached("box", "--", "git", "clone", "https://github.com/a/b")
	h.do("logs", "-f", "box", id)
	assert.Contains(t, h.do("ps", "--json", "box"), "this session has no network; to allow GitHub and other hosts of git: wisbox allow box git")

	_, errs, code = command(t, h.cache, "exec", "box", "--", "sh", "-c", "curl -sS https://pypi.org; true")
	assert.Equal(t, 0, code)
	assert.NotContains(t, errs, "no network", "a program that succeeds")
	_, errs, _ = command(t, h.cache, "exec", "box", "--", "curl", "-sS", "http://localhost:9")
	assert.NotContains(t, errs, "no network", "localhost is the session itself")
	assert.Contains(t, h.do("exec", "box", "--", "env"), "npm_config_fetch_retries=0\n", "npm would repeat for a minute")
	h.do("session", "rm", "box")

	h.do("session", "create", "open", "--allow", "pypi.org")
	_, errs, _ = command(t, h.cache, "exec", "open", "--", "curl", "-sS", "https://example.com")
	assert.Contains(t, errs, "wisbox: network denied: example.com:443")
	assert.NotContains(t, errs, "no network", "the session has one")
	assert.NotContains(t, h.do("exec", "open", "--", "env"), "npm_config_fetch_retries")
	h.do("session", "rm", "open")
}
