package serve_test

import (
	"context"
	"log"
	"path/filepath"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/serve"
)

func ExampleNew() {
	ctx := context.Background()
	m, err := wisbox.NewManager(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	s, err := serve.New(ctx, &serve.Options{Manager: m, Dir: filepath.Join("state", "serve"), NoKeys: true})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	l, err := s.Listen("127.0.0.1:3000")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(s.Serve(ctx, l))
}
