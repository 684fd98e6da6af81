package envd

import (
	"encoding/base64"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

func TestProgramsRunAsTheUserAtHome(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	o := b.run(`pwd; whoami; id -un; id -gn; echo $HOME $USER $FROM; echo x > f; cat /workspace/f; ls -ld ~ | cut -d' ' -f3,4; echo oops >&2; exit 3`)
	assert.Equal(t, "/home/user\nuser\nuser\nuser\n/home/user user options\nx\nuser user\n", o.stdout)
	assert.Equal(t, "oops\n", o.stderr)
	assert.Equal(t, object{"exitCode": 3., "exited": true, "status": "exit status 3", "error": "exit status 3"}, o.end)
	assert.Equal(t, object{}, o.last)
	assert.Positive(t, o.pid)
}

func TestAnEndBySignalIsMinusOne(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	killed := object{"exitCode": -1., "exited": false, "status": "signal: killed", "error": "signal: killed"}
	assert.Equal(t, killed, b.run(`kill -9 $$`).end)
	s := b.open("process.Process/Start", shell(`sleep 600`), nil)
	o := outcome{pid: s.begin()}
	b.must("process.Process/SendSignal", object{"process": object{"pid": o.pid}, "signal": "SIGNAL_SIGKILL"})
	s.rest(&o)
	assert.Equal(t, killed, o.end)
	status, answer := b.call("process.Process/SendSignal", object{"process": object{"pid": o.pid}, "signal": "SIGNAL_SIGKILL"})
	assert.Equal(t, 404, status)
	assert.Equal(t, "not_found", answer["code"])
}

func TestErrorsOfAStreamAreInItsEnd(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	for name, c := range map[string]struct {
		method, code string
		ask          object
	}{
		"directory": {"process.Process/Start", "invalid_argument", object{"process": object{"cmd": "true", "cwd": "/nowhere"}}},
		"program":   {"process.Process/Connect", "not_found", pid(999999)},
		"watch":     {"filesystem.Filesystem/WatchDir", "not_found", object{"path": "nowhere"}},
		"file":      {"filesystem.Filesystem/WatchDir", "invalid_argument", object{"path": "/etc/passwd"}},
	} {
		t.Run(name, func(t *testing.T) {
			message, last, err := b.open(c.method, c.ask, nil).next()
			require.NoError(t, err)
			require.True(t, last)
			assert.Equal(t, c.code, message["error"].(object)["code"])
		})
	}
}

func TestInputGoesToTheProgram(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	ask := shell(`cat; echo end`)
	ask["tag"] = "reader"
	s := b.open("process.Process/Start", ask, nil)
	o := outcome{pid: s.begin()}
	list := b.must("process.Process/List", object{})["processes"].([]any)
	require.Len(t, list, 1)
	assert.Equal(t, "reader", list[0].(object)["tag"])
	assert.Equal(t, "/bin/bash", list[0].(object)["config"].(object)["cmd"])
	b.must("process.Process/SendInput", object{"process": object{"tag": "reader"}, "input": object{"stdin": base64.StdEncoding.EncodeToString([]byte("a\x00\xffb\n"))}})
	b.must("process.Process/SendInput", object{"process": object{"pid": o.pid}, "input": object{"stdin": ""}})
	b.must("process.Process/CloseStdin", pid(o.pid))
	s.rest(&o)
	assert.Equal(t, "a\x00\xffb\nend\n", o.stdout)
	silent := shell(`cat; echo end`)
	silent["stdin"] = false
	s = b.open("process.Process/Start", silent, nil)
	o = outcome{pid: s.begin()}
	s.rest(&o)
	assert.Equal(t, "end\n", o.stdout)
}

func TestATerminal(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	s := b.open("process.Process/Start", object{
		"process": object{"cmd": "/bin/bash", "args": []string{"-i", "-l"}, "envs": object{"TERM": "xterm"}},
		"pty":     object{"size": object{"cols": 91, "rows": 31}},
	}, nil)
	o := outcome{pid: s.begin()}
	say := func(text string) {
		b.must("process.Process/SendInput", object{"process": object{"pid": o.pid}, "input": object{"pty": base64.StdEncoding.EncodeToString([]byte(text))}})
	}
	b.must("process.Process/Update", object{"process": object{"pid": o.pid}, "pty": object{"size": object{"cols": 92, "rows": 32}}})
	say("stty size; exit\n")
	s.rest(&o)
	assert.Contains(t, o.pty, "32 92")
	assert.Equal(t, 0., o.end["exitCode"])
}

func TestAClientThatLeavesEndsNothing(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	s := b.open("process.Process/Start", shell(`echo first; read line; echo "got $line"; exit 7`), nil)
	n := s.begin()
	s.want()
	s.end()
	one, two := b.open("process.Process/Connect", pid(n), nil), b.open("process.Process/Connect", pid(n), nil)
	assert.Equal(t, n, one.begin())
	assert.Equal(t, n, two.begin())
	b.must("process.Process/SendInput", object{"process": object{"pid": n}, "input": object{"stdin": base64.StdEncoding.EncodeToString([]byte("it\n"))}})
	for _, listener := range []*stream{one, two} {
		var o outcome
		listener.rest(&o)
		assert.Equal(t, "got it\n", o.stdout, "from now on, without a replay")
		assert.Equal(t, 7., o.end["exitCode"])
	}
	late := b.open("process.Process/Connect", pid(n), nil)
	o := outcome{pid: late.begin()}
	late.rest(&o)
	assert.Empty(t, o.stdout)
	assert.Equal(t, 7., o.end["exitCode"])
}

func TestWhatAProgramLeavesLivesOn(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	o := b.run(`(setsid sleep 600 >/dev/null 2>&1 & echo $! > left); sleep 600 >/dev/null 2>&1 & echo $!`)
	require.Equal(t, 0., o.end["exitCode"])
	o = b.run(`kill -0 $(cat left) && kill -0 ` + strings.TrimSpace(o.stdout) + ` && echo both`)
	assert.Equal(t, "both\n", o.stdout)
}

func TestATimeLimitKillsTheProgram(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	s := b.open("process.Process/Start", shell(`sleep 600`), map[string]string{"Connect-Timeout-Ms": "2000"})
	message, last, err := s.next()
	for err == nil && !last { // its start, if that was quick enough
		assert.NotContains(t, message["event"], "end")
		message, last, err = s.next()
	}
	require.NoError(t, err)
	assert.Equal(t, "deadline_exceeded", message["error"].(object)["code"])
	require.Eventually(t, func() bool {
		return len(b.must("process.Process/List", object{})["processes"].([]any)) == 0
	}, guard, guard/1000)
}

func TestSilenceIsBrokenByKeepalives(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	s := b.open("process.Process/Start", shell(`read x`), map[string]string{"Keepalive-Ping-Interval": "1"})
	s.begin()
	assert.Equal(t, object{"event": object{"keepalive": object{}}}, s.want())
	w := b.open("filesystem.Filesystem/WatchDir", object{"path": "."}, map[string]string{"Keepalive-Ping-Interval": "1"})
	message := w.want()
	for message["keepalive"] != nil { // on a busy machine one may come first
		message = w.want()
	}
	assert.Equal(t, object{"start": object{}}, message)
	assert.Equal(t, object{"keepalive": object{}}, w.want())
}

func TestTheSandboxsEndCutsStreams(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	s := b.open("process.Process/Start", shell(`sleep 600`), nil)
	s.begin()
	w := b.open("filesystem.Filesystem/WatchDir", object{"path": "."}, nil)
	w.want()
	b.end()
	for _, cut := range []*stream{s, w} {
		_, _, err := cut.next()
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
	res := b.do("GET", "/health", nil, nil)
	assert.Equal(t, 502, res.StatusCode)
}

// TestAllOutputReachesItsStarter, however much it is, and a client that stops reading delays nobody.
func TestAllOutputReachesItsStarter(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	const bytes = 64 << 20
	s := b.open("process.Process/Start", shell(`head -c 67108864 /dev/zero; echo done >&2`), nil)
	o := outcome{pid: s.begin()}
	s.rest(&o)
	got := len(o.stdout)
	assert.Equal(t, bytes, got)
	assert.Equal(t, "done\n", o.stderr)

	stalled := b.open("process.Process/Start", shell(`head -c 134217728 /dev/zero; touch flooded; read x; echo last`), nil)
	n := stalled.begin()
	require.Eventually(t, func() bool {
		_, err := b.session.Inside().Stat(t.Context(), "/home/user/flooded", sandbox.StatOptions{})
		return err == nil
	}, 4*guard, guard/1000)
	other := b.open("process.Process/Connect", pid(n), nil)
	other.begin()
	b.must("process.Process/CloseStdin", pid(n))
	o = outcome{}
	other.rest(&o)
	assert.True(t, strings.HasSuffix(o.stdout, "last\n")) // after the output that was on its way
}

func TestManyVariables(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	envs := object{}
	for i := range 500 {
		envs["V"+strings.Repeat("x", i)] = strings.Repeat("y", 1000)
	}
	ask := shell(`env | grep -c '^Vx*=y*$'`)
	ask["process"].(object)["envs"] = envs
	s := b.open("process.Process/Start", ask, nil)
	o := outcome{pid: s.begin()}
	s.rest(&o)
	assert.Equal(t, "500\n", o.stdout)
}

func TestAClosedNetworkIsSaid(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	const hint = "this sandbox has no network: it needs a server with --allow-internet, and a host in network.allowOut or allowInternetAccess"
	o := b.run(`curl -sS https://example.com`)
	assert.Contains(t, o.stderr, "Could not resolve host: example.com\n"+hint+"\n")
	assert.Equal(t, object{"exitCode": 6., "exited": true, "status": "exit status 6", "error": "exit status 6: " + hint}, o.end)
	assert.NotContains(t, b.run(`curl -sS https://example.com; true`).stderr, hint)
}
