package main

import (
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/wisbox/wisbox/sandbox"
	"sync"
)

// coder is a coding agent: a program of npm's registry, and how to start it in a session. In its
// texts {url} stands for the API's base URL, {keyend} for the end of the key's placeholder, and
// {prompt} for the prompt; an argument {args} stands for those of the command line.
type coder struct {
	name    string // also the name of its program
	pkg     string // the package of npm
	version string // without --agent-version
	apis    []coderAPI

	env   map[string]string
	files map[string]string // by path in the agent's home, which is in memory and ends with the container

	// terminal and headless are the agent's arguments with and without a person at a terminal. They
	// turn off the agent's own sandbox and questions: the session is its sandbox.
	terminal, headless []string
}

// coderAPI describes how an agent reaches its model.
type coderAPI struct {
	key            string // the variable that holds the key; inside, the placeholder
	url            string // the base URL in the agent's form; requests are below its path
	header, scheme string // the header that carries the key
	path           string // of all requests to the host of url, if that has none: another one, such as Google's /batch, could carry other credentials
}

var (
	anthropicKey = coderAPI{key: "ANTHROPIC_API_KEY", header: "x-api-key"}
	openaiKey    = coderAPI{key: "OPENAI_API_KEY", header: "Authorization", scheme: "Bearer"}
	geminiKey    = coderAPI{key: "GEMINI_API_KEY", header: "x-goog-api-key", path: "/v1beta/"}
)

// at returns an API at a base URL.
func (k coderAPI) at(url string) coderAPI {
	k.url = url
	return k
}

// coders has all known agents. After you change a version, run make nightly, which lets each agent
// do a task.
var coders = []coder{
	{
		name: "claude", pkg: "@anthropic-ai/claude-code", version: "2.1.330",
		apis: []coderAPI{anthropicKey.at("https://api.anthropic.com")},
		env: map[string]string{
			"ANTHROPIC_BASE_URL": "{url}", "IS_SANDBOX": "1", "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
		},
		files: map[string]string{".claude.json": `{"hasCompletedOnboarding":true,"bypassPermissionsModeAccepted":true,` +
			`"customApiKeyResponses":{"approved":["{keyend}"]},"projects":{"` + sandbox.WorkspaceDir + `":{"hasTrustDialogAccepted":true}}}`},
		terminal: []string{"--dangerously-skip-permissions", "{args}"},
		headless: []string{"-p", "--dangerously-skip-permissions", "{args}", "--", "{prompt}"},
	},
	{
		name: "codex", pkg: "@openai/codex", version: "0.169.0",
		apis: []coderAPI{openaiKey.at("https://api.openai.com/v1")},
		files: map[string]string{".codex/config.toml": `check_for_update_on_startup = false
model_provider = "wisbox"
[model_providers.wisbox]
name = "wisbox"
base_url = "{url}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
[analytics]
enabled = false
[features]
daemon_auto_start = false
plugins = false
[projects."` + sandbox.WorkspaceDir + `"]
trust_level = "trusted"
`},
		terminal: []string{"--dangerously-bypass-approvals-and-sandbox", "{args}"},
		headless: []string{"exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "{args}", "--", "{prompt}"},
	},
	{
		name: "gemini", pkg: "@google/gemini-cli", version: "0.61.0",
		apis: []coderAPI{geminiKey.at("https://generativelanguage.googleapis.com")},
		env:  map[string]string{"GOOGLE_GEMINI_BASE_URL": "{url}", "GEMINI_CLI_TRUST_WORKSPACE": "true", "COLORTERM": "truecolor"}, // it warns of few colours, even without a terminal
		files: map[string]string{".gemini/settings.json": `{"security":{"auth":{"selectedType":"gemini-api-key"},"folderTrust":{"enabled":false}},` +
			`"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false},"privacy":{"usageStatisticsEnabled":false}}`},
		terminal: []string{"--yolo", "{args}"},
		headless: []string{"--yolo", "{args}", "--prompt={prompt}"},
	},
	{
		name: "opencode", pkg: "opencode-ai", version: "1.18.33",
		apis: []coderAPI{anthropicKey.at("https://api.anthropic.com/v1"), openaiKey.at("https://api.openai.com/v1")},
		env: map[string]string{
			"OPENCODE_CONFIG_CONTENT": `{"autoupdate":false,"share":"disabled","permission":"allow",` +
				`"provider":{"anthropic":{"options":{"baseURL":"{url}"}},"openai":{"options":{"baseURL":"{url}"}}}}`,
			"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
		},
		terminal: []string{"{args}"},
		headless: []string{"run", "{args}", "--", "{prompt}"},
	},
}

func coderNames() (names []string) {
	for _, c := range coders {
		names = append(names, c.name)
	}
	return names
}

func coderOf(name string) (*coder, error) {
	for i := range coders {
		if coders[i].name == name {
			return &coders[i], nil
		}
	}
	return nil, usageError{fmt.Errorf("unknown agent %q; the agents are %s", name, strings.Join(coderNames(), ", "))}
}

// keyEnd is the number of last characters by which an agent's settings identify a key.
const keyEnd = 20

// filled replaces {url} and {keyend} in a text.
func filled(text, url, key string) string {
	return strings.NewReplacer("{url}", url, "{keyend}", key[max(0, len(key)-keyEnd):]).Replace(text)
}

// argv returns the command line that starts the agent; prompt "" means at a terminal.
func (c *coder) argv(prompt string, args []string) []string {
	form := c.terminal
	if prompt != "" {
		form = c.headless
	}
	argv := []string{c.name}
	for _, arg := range form {
		if arg == "{args}" {
			argv = append(argv, args...)
			continue
		}
		argv = append(argv, strings.ReplaceAll(arg, "{prompt}", prompt))
	}
	return argv
}

// exactVersion matches the version of a single release, which has no special meaning to a shell.
var exactVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]{1,60})?$`) })

// rootsFile has this machine's certificate authorities, beside the Containerfile: a company's proxy
// may have its own.
const rootsFile = "roots.pem"

// locks has npm's lock files: the packages of an agent's version with their hashes. opencode has
// none, because its packages for other processors aren't in every registry.
//
//go:embed coders/*.json
var locks embed.FS

// lock returns npm's package.json and package-lock.json for a version; nil if wisbox has none.
func (c *coder) lock(version string) (manifest, lock []byte) {
	lock, err := locks.ReadFile("coders/" + c.name + ".json")
	if err != nil || version != c.version {
		return nil, nil
	}
	return fmt.Appendf(nil, `{"name":"wisbox-agent","private":true,"dependencies":{%q:%q}}`, c.pkg, version), lock
}

// lockedFile returns a Containerfile for a version with a lock: npm refuses other content.
func (c *coder) lockedFile(from string) string {
	return fmt.Sprintf("FROM %s\nCOPY package.json package-lock.json /usr/local/lib/wisbox-agent/\n"+
		"RUN --mount=type=bind,source=%s,target=/%[2]s cd /usr/local/lib/wisbox-agent && NODE_EXTRA_CA_CERTS=/%[2]s "+
		"npm ci --no-fund --no-audit --no-update-notifier --loglevel=error && ln -s ../lib/wisbox-agent/node_modules/.bin/%[3]s /usr/local/bin/%[3]s && "+
		"rm -rf /root/.npm /tmp/* && %[3]s --version\n", from, rootsFile, c.name)
}

// containerfile returns the Containerfile of the agent's image for a version without a lock. npm's
// registry then decides which files the version has.
func (c *coder) containerfile(from, version string) string {
	return fmt.Sprintf("FROM %s\nRUN --mount=type=bind,source=%s,target=/%[2]s NODE_EXTRA_CA_CERTS=/%[2]s "+
		"npm install -g --no-fund --no-audit --no-update-notifier --loglevel=error %s@%s && rm -rf /root/.npm /tmp/* && %s --version\n", from, rootsFile, c.pkg, version, c.name)
}
