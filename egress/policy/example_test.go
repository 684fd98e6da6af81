package policy_test

import (
	"fmt"

	"github.com/wisbox/wisbox/egress/policy"
)

func ExampleParse() {
	p, err := policy.Parse(policy.Settings{Allow: []string{"*.Example.com", "tcp:git.example.org:22"}, Deny: []string{"old.example.com"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, host := range []string{"www.example.com", "old.example.com", "example.org"} {
		d := p.Decide(host, 443)
		fmt.Printf("%s %t %q\n", host, d.Allowed, d.Rule)
	}
	_, err = policy.Parse(policy.Settings{Allow: []string{"*.co.uk"}})
	fmt.Println(err)
	// Output:
	// www.example.com true "*.example.com"
	// old.example.com false "old.example.com"
	// example.org false ""
	// allow "*.co.uk": everyone can have a name below co.uk; name the site, as *.example.co.uk
}
