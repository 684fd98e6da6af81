package egress_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/wisbox/wisbox/egress"
	"github.com/wisbox/wisbox/egress/policy"
)

// The listener stands for one inside a sandbox, where [egress.Proxy.Start] makes it.
func ExampleNew() {
	rules, err := policy.Parse(policy.Settings{Allow: []string{"python", "*.example.com"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := egress.New(&egress.Options{Policy: rules, Session: "job"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = p.Serve(l) }()

	proxy := &url.URL{Scheme: "http", Host: l.Addr().String()}
	program := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}}
	resp, err := program.Get("http://example.org/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Print(resp.Status, "\n", string(body))
	// Output:
	// 403 Forbidden
	// Denied by wisbox: example.org:80: no rule allows it; to allow it: wisbox allow job example.org:80
}

func ExampleVariables() {
	rules, err := policy.Parse(policy.Settings{
		Allow:  []string{"api.example.com"},
		Inject: []string{"api.example.com:Authorization=Bearer KEY,methods=GET|HEAD,path=/v1/,env=API_KEY"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	vars := egress.Variables("http://127.0.0.1:3128", "/run/wisbox/ca.pem", rules)
	fmt.Println(vars["https_proxy"], vars["SSL_CERT_FILE"], vars["API_KEY"])
	// Output: http://127.0.0.1:3128 /run/wisbox/ca.pem wisbox-placeholder-KEY
}
