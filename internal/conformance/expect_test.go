package conformance

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// answerFrom parses the short form used in the tables below.
func answerFrom(text string) Answer {
	v := value(text)
	a := Answer{Result: get(v, "result"), Failed: string(get(v, "failed")) == "true", Error: get(v, "error")}
	a.Text, _ = textOf(get(v, "text"))
	if words, refused := textOf(get(v, "start")); refused {
		a.Refused = &words
	}
	return a
}

func TestExpectationsJudgeAnswers(t *testing.T) {
	const (
		empty   = `{"result":{}}`
		marked  = `{"result":{},"failed":true}`
		invalid = `{"error":{"kind":"invalid","message":"at most 16 segments","field":"path"}}`
		refused = `{"start":"wisbox: invalid: not under an allow-root"}`
	)
	for _, c := range []struct {
		expect, answer string
		met            bool
	}{
		{"ok:any", empty, true},
		{"ok:any", marked, false},
		{"failed:any", marked, true},
		{"failed:any", empty, false},
		{"result:any", marked, true},
		{"result:any", empty, true},
		{"ok:any", invalid, false},
		{"error:invalid", invalid, true},
		{"error:not_found|invalid", invalid, true},
		{"error:not_found", invalid, false},
		{"error:invalid", empty, false},
		{"error:invalid && field=path", invalid, true},
		{"error:invalid && message~16 seg", invalid, true},
		{"error:invalid && message~17", invalid, false},
		{"error:invalid", `{"error":{"kind":"bad-answer","message":"x"}}`, false},
		{"error:not_found|ok:a=1", `{"result":{"a":1}}`, true},
		{"error:not_found|ok:a=1", `{"result":{"a":2}}`, false},
		{"ok:a=1", `{"result":{"a":true}}`, false},
		{"ok:a=1", `{"result":{"a":"1"}}`, false},
		{"ok:a=1", `{"result":{"a":1.0}}`, true},
		{"ok:a=9007199254740993", `{"result":{"a":9007199254740992.0}}`, false},
		{`ok:a="1"`, `{"result":{"a":"1"}}`, true},
		{"ok:a=x y", `{"result":{"a":"x y"}}`, true},
		{"ok:a=", `{"result":{"a":""}}`, true},
		{"ok:a=null", `{"result":{"a":null}}`, true},
		{"ok:a=null", empty, false},
		{"ok:a!=1", empty, false},
		{"ok:a!=1", `{"result":{"a":2}}`, true},
		{"ok:a=NaN", `{"result":{"a":"NaN"}}`, true},
		{`ok:a={"y":[1],"x":2}`, `{"result":{"a":{"x":2,"y":[1.0]}}}`, true},
		{"ok:a={}", `{"result":{"a":1}}`, false},
		{"ok:a=[]", `{"result":{"a":1}}`, false},
		{"ok:l.0.n=b", `{"result":{"l":[{"n":"b"}]}}`, true},
		{"ok:l.-1.n=b", `{"result":{"l":[{"n":"a"},{"n":"b"}]}}`, true},
		{"ok:l.1.n=b", `{"result":{"l":[{"n":"b"}]}}`, false},
		{`ok:l.*.n=["a","b"]`, `{"result":{"l":[{"n":"a"},{"n":"b"}]}}`, true},
		{`ok:l.*.n=["b","a"]`, `{"result":{"l":[{"n":"a"},{"n":"b"}]}}`, false},
		{"ok:has(l.*)", `{"result":{"l":{"*":1}}}`, false},
		{"ok:reads.a.txt=1", `{"result":{"reads":{"a.txt":1}}}`, true},
		{"ok:reads.a.txt.n=1", `{"result":{"reads":{"a":{"txt":{"n":2}},"a.txt":{"n":1}}}}`, true},
		{"ok:len(l)=0", `{"result":{"l":[]}}`, true},
		{"ok:len(l)=0", empty, false},
		{"ok:len(s)=2", `{"result":{"s":"é😀"}}`, true},
		{"ok:len(s)<=3", `{"result":{"s":"abcd"}}`, false},
		{"ok:len(text)=1", `{"result":{},"text":"t"}`, true},
		{"ok:n>=2 && n<3", `{"result":{"n":2}}`, true},
		{"ok:len(o)=2", `{"result":{"o":{"a":1,"b":2}}}`, true},
		{"ok:len(n)=1", `{"result":{"n":1}}`, false},
		{"ok:len(s)!=2", `{"result":{"s":"ab"}}`, false},
		{"ok:len(s)!=2", `{"result":{"s":"a"}}`, true},
		{"ok:len(s)>2", `{"result":{"s":"ab"}}`, false},
		{"ok:len(s)<2", `{"result":{"s":"ab"}}`, false},
		{"ok:len(s)>=2 && len(s)<=2", `{"result":{"s":"ab"}}`, true},
		{"ok:n>2", `{"result":{"n":2}}`, false},
		{"ok:n<2", `{"result":{"n":2}}`, false},
		{"ok:n<=2", `{"result":{"n":2.0}}`, true},
		{"ok:n>-1e3", `{"result":{"n":-1}}`, true},
		{"ok:n>=2", `{"result":{"n":"5"}}`, false},
		{"ok:n>=2", `{"result":{"n":true}}`, false},
		{"ok:s~^a", `{"result":{"s":"abc"}}`, true},
		{"ok:s~c$", `{"result":{"s":"abc\n"}}`, true},
		{"ok:s~c$", `{"result":{"s":"abc\n\n"}}`, false},
		{"ok:s~(?m)^b$", `{"result":{"s":"a\nb\nc"}}`, true},
		{`ok:s~^\w+\s[\d,$]+\$$`, `{"result":{"s":"e 12,3$\n"}}`, true},
		{`ok:s~^\w+\s[\d,$]+\$$`, `{"result":{"s":"e 12,3\n"}}`, false},
		{`ok:s~^[]$]$`, `{"result":{"s":"$"}}`, true},
		{"ok:s!~b", `{"result":{"s":"abc"}}`, false},
		{"ok:s!~b", empty, false},
		{`ok:s~^\{"a": \[1, 2\]\}$`, `{"result":{"s":{"a":[1,2]}}}`, true},
		{"ok:has(a.b)", `{"result":{"a":{"b":null}}}`, true},
		{"ok:no(a.b)", `{"result":{"a":{}}}`, true},
		{`ok:contains=a"b`, `{"result":{"s":"a\"b"}}`, true},
		{`ok:contains="n": 1.5, "l": [1, 2]`, `{"result":{"n":1.5,"l":[1,2]}}`, true},
		{`ok:contains="z": "<", "a": "é, :"`, "{\"result\":{ \"z\" :\"\\u003c\",\n\"a\":\"\\u00e9, :\"}}", true},
		{"ok:not_contains=root:", `{"result":{"s":"root:x"}}`, false},
		{"ok:count=0", `{"result":{"matches":[]}}`, true},
		{"ok:count=0", empty, false},
		{"ok:max_count=1", `{"result":{"entries":[1,2]}}`, false},
		{"ok:max_len=5", `{"result":{"s":"abcdef"}}`, false},
		{`ok:text~ 3 \| x`, `{"result":{},"text":"   3 | x"}`, true},
		{"start:allow", refused, true},
		{"start:nothing", refused, false},
		{"error:invalid", refused, false},
		{"result:any", refused, false},
		{"start:.", empty, false},
	} {
		why, err := Match(c.expect, answerFrom(c.answer))
		require.NoError(t, err, c.expect)
		assert.Equal(t, c.met, why == "", "%s on %s: %s", c.expect, c.answer, why)
	}
}

func TestUnknownWordsOfTheLanguageAreErrors(t *testing.T) {
	for _, expect := range []string{"error:nonsense", "maybe:any", "ok:???", "ok", "ok:n>x", "ok:s~("} {
		_, err := Match(expect, answerFrom(`{"result":{"n":1,"s":"x"}}`))
		assert.Error(t, err, expect)
	}
}

func TestRepliesOfAServerBecomeAnswers(t *testing.T) {
	text := func(s string) string {
		return `"content":[{"type":"text","text":` + string(quote(s)) + `}]`
	}
	const meta = `,"_meta":{"wisbox/error":{"kind":"exists","message":"m"}}`
	for _, c := range []struct{ name, reply, expect string }{
		{"result", `{"result":{` + text("t") + `,"structuredContent":{"a":1}}}`, "ok:a=1 && text=t"},
		{"marked result", `{"result":{` + text("t") + `,"structuredContent":{"a":1},"isError":true}}`, "failed:a=1"},
		{"error", `{"result":{` + text("exists: m") + `,"isError":true` + meta + `}}`, "error:exists && message=m"},
		{"nested error", `{"result":{` + text("exists: m") + `,"isError":true,"_meta":{"wisbox/error":{"error":{"kind":"exists","message":"m"}}}}}`, "error:exists"},
		{"content of several kinds", `{"result":{"content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}],"structuredContent":{}}}`, "ok:text~^a\nb$"},
		{"error in content that repeats it", `{"result":{` + text("exists: m") + `,"isError":true,"structuredContent":{"error":{}}}}`, "error:exists"},
		{"error in text alone", `{"result":{` + text("exists: m\nn") + `,"isError":true}}`, "error:exists && message~n$"},
	} {
		why, err := Match(c.expect, ParseReply([]byte(c.reply)))
		require.NoError(t, err)
		assert.Empty(t, why, c.name)
	}
	for _, c := range []struct{ name, reply, kind string }{
		{"unknown kind in text", `{"result":{` + text("oops: m") + `,"isError":true}}`, "bad-answer"},
		{"text without the kind", `{"result":{` + text("m") + `,"isError":true` + meta + `}}`, "bad-answer"},
		{"error without the mark", `{"result":{` + text("exists: m") + meta + `}}`, "bad-answer"},
		{"no structured content", `{"result":{` + text("t") + `}}`, "bad-answer"},
		{"no text", `{"result":{"content":[],"structuredContent":{}}}`, "bad-answer"},
		{"empty message", `{"result":{` + text("exists: ") + `,"isError":true,"_meta":{"wisbox/error":{"kind":"exists","message":" "}}}}`, "bad-answer"},
		{"protocol error", `{"error":{"code":-32602,"message":"m"}}`, "rpc-32602"},
		{"no object", `[]`, "bad-answer"},
		{"two objects", `{"result":{` + text("t") + `,"structuredContent":{}}} {}`, "bad-answer"},
		{"no result", `{"result":[]}`, "bad-answer"},
		{"content no list", `{"result":{"content":{},"structuredContent":{}}}`, "bad-answer"},
		{"text no text", `{"result":{"content":[{"type":"text","text":1}],"structuredContent":{}}}`, "bad-answer"},
		{"failure without error or result", `{"result":{` + text("t") + `,"isError":true,"structuredContent":null}}`, "bad-answer"},
		{"error of no object", `{"result":{` + text("exists: m") + `,"isError":true,"_meta":{"wisbox/error":"exists"}}}`, "bad-answer"},
	} {
		a := ParseReply([]byte(c.reply))
		assert.JSONEq(t, strconv.Quote(c.kind), string(get(a.Error, "kind")), c.name)
	}
}

func TestArgumentsAreFilledAndUnrolled(t *testing.T) {
	v := vars{"PID": quote("p1"), "N": value("7")}
	got, err := v.arguments(json.RawMessage(`{"b":{"$rep":["a{{PID}}",3,"!"]},"c":{"$rep":["x",0,""]},"a":["{{N}}","x{{N}}","{{name}}"],"z":1.0}`))
	require.NoError(t, err)
	assert.Equal(t, `{"a":[7,"x7","{{name}}"],"b":"ap1ap1ap1!","c":"","z":1.0}`, string(got))
	_, err = v.arguments(json.RawMessage(`{"a":"{{WHO}}"}`))
	assert.ErrorContains(t, err, "{{WHO}}")
	for _, bad := range []string{`["x",-1,""]`, `["x",1]`, `["x",1,"",""]`, `[1,1,""]`, `"x"`} {
		_, err = v.arguments(json.RawMessage(`{"a":{"$rep":` + bad + `}}`))
		assert.ErrorContains(t, err, "$rep", bad)
	}
}

func FuzzMatchNeverPanics(f *testing.F) {
	f.Add("error:invalid && field=a|ok:len(a.*.b)>=2", `{"result":{"a":[{"b":1}]}}`)
	f.Add("ok:a.-1~[]^$\\w]", `{"error":{"kind":"invalid"}}`)
	f.Fuzz(func(t *testing.T, expect, answer string) {
		if !json.Valid([]byte(answer)) {
			return
		}
		a := answerFrom(answer)
		why, err := Match(expect, a)
		if err == nil && why == "" {
			require.NotEmpty(t, expect)
		}
	})
}
