package page_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/page"
)

func ExampleListen() {
	ctx := context.Background()
	m, err := wisbox.NewManager(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	store, err := overlay.OpenStore("")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	server, err := page.Listen(&page.Options{Manager: m, Store: store})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("open", server.URL())
	log.Fatal(server.Serve(ctx))
}

// dialer returns a dial function that always connects to one address.
func dialer(addr string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
}
