package egress

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wisbox/wisbox/egress/policy"
)

// Denial describes a refused connection or request, and how to allow it.
type Denial struct {
	Time   time.Time `json:"time"`
	Host   string    `json:"host"`
	Port   int       `json:"port,omitempty"`
	Reason string    `json:"reason"`
	// Allow is the command or flag that allows it; "" if there is none.
	Allow string `json:"allow,omitempty"`
	// Advice helps where no rule does; "" if there is none.
	Advice string `json:"advice,omitempty"`
}

// String returns the denial's text for programs.
func (d Denial) String() string {
	text := d.Host
	if d.Port != 0 {
		text += ":" + strconv.Itoa(d.Port)
	}
	text += ": " + d.Reason
	if d.Allow != "" {
		text += "; to allow it: " + d.Allow
	}
	if d.Advice != "" {
		text += "; " + d.Advice
	}
	return text
}

// refusal is the reason why a connection or request isn't made. Its text is fit for programs.
type refusal struct {
	status int // of the answer
	host   string
	port   uint16
	reason string
	rule   string // the rule that denies it
	allow  string // the rule that would allow it; "" if there is none
	advice string // what else helps; "" if nothing does
}

func (r *refusal) Error() string { return r.reason }

// denied reports whether the policy refuses it, rather than the network.
func (r *refusal) denied() bool { return r.status != http.StatusBadGateway }

func notAllowed(d policy.Decision) *refusal {
	r := &refusal{status: http.StatusForbidden, host: d.Host, port: d.Port, reason: d.Reason, rule: d.Rule}
	if d.Rule != "" {
		return r // another rule can't override a denial
	}
	rule := fmt.Sprintf("%s:%d", d.Host, d.Port)
	if d.Host == policy.ThisMachine {
		rule = fmt.Sprintf("host:%d", d.Port)
	}
	if p, err := policy.Parse(policy.Settings{Allow: []string{rule}}); err == nil && p.Decide(d.Host, d.Port).Allowed {
		r.allow = rule // no advice that would be refused
	}
	return r
}

func refuse(d policy.Decision, format string, args ...any) *refusal {
	return &refusal{status: http.StatusForbidden, host: d.Host, port: d.Port, rule: d.Rule, reason: fmt.Sprintf(format, args...)}
}

func badGateway(d policy.Decision, format string, args ...any) *refusal {
	r := refuse(d, format, args...)
	r.status = http.StatusBadGateway
	return r
}

// asRefusal returns err if it is a refusal, or else a refusal that reports an error of the server.
func asRefusal(d policy.Decision, err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	if errors.Is(err, errHeads) {
		return badGateway(d, "%v", err)
	}
	return badGateway(d, "the server's answer can't be used: %s", clean(err.Error(), 200))
}

// clean makes a text fit for a header, a status line or a log.
func clean(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	if len(text) > most {
		text = text[:most] + "..."
	}
	return text
}

func (p *Proxy) denial(r *refusal) Denial {
	d := Denial{Time: time.Now(), Host: clean(r.host, 253), Port: int(r.port), Reason: clean(r.reason, 300), Advice: r.advice}
	switch {
	case r.allow == "":
	case p.opts.Session != "":
		d.Allow = "wisbox allow " + p.opts.Session + " " + r.allow
	default:
		d.Allow = "--allow " + r.allow
	}
	return d
}

// kept is the number of denials kept for the result of a call.
const kept = 5

// numbered is a denial with its sequence number.
type numbered struct {
	Denial
	n int64
}

// Denied returns the last denials after a mark, at most five different ones, and the current mark. A call gets a mark
// at its beginning, and the denials after it at its end.
func (p *Proxy) Denied(after int64) (last []Denial, mark int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.last {
		if d.n > after {
			last = append(last, d.Denial)
		}
	}
	return last, p.denials
}

func (p *Proxy) keep(d Denial) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denials++
	p.last = slices.DeleteFunc(p.last, func(o numbered) bool { return o.String() == d.String() })
	if len(p.last) == kept {
		p.last = slices.Delete(p.last, 0, 1)
	}
	p.last = append(p.last, numbered{d, p.denials})
}

// answer writes a refusal as HTTP.
func (p *Proxy) answer(w http.ResponseWriter, r *refusal) {
	text := p.text(r)
	header := w.Header()
	if r.denied() {
		header.Set(deniedHeader, text)
	}
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(r.status)
	_, _ = fmt.Fprintf(w, "%s by wisbox: %s\n", verb(r), text)
}

// rawAnswer returns a refusal as the answer to a CONNECT: many programs print only the status line.
func (p *Proxy) rawAnswer(r *refusal) string {
	text := p.text(r)
	line := fmt.Sprintf("%s by wisbox: %s", verb(r), text)
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\n", r.status, line)
	if r.denied() {
		head += deniedHeader + ": " + text + "\r\n"
	}
	return head + fmt.Sprintf("Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n", len(line)+1, line)
}

const deniedHeader = "X-Wisbox-Denied"

func (p *Proxy) text(r *refusal) string {
	if r.denied() {
		return p.denial(r).String()
	}
	return fmt.Sprintf("%s:%d: %s", clean(r.host, 253), r.port, clean(r.reason, 300))
}

func verb(r *refusal) string {
	switch r.status {
	case http.StatusBadGateway:
		return "Failed"
	case http.StatusBadRequest:
		return "Refused"
	}
	return "Denied"
}
