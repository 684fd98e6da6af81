package metrics_test

import (
	"context"
	"log"
	"net/http"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/metrics"
)

func ExampleNew() {
	numbers := metrics.New()
	m, err := wisbox.NewManager(context.Background(), &wisbox.Options{Meter: numbers})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	numbers.Watch(m.Stats)
	http.Handle("/metrics", metrics.Handler(numbers))
}

// One page has the counters of all processes that hold kept sessions.
func ExampleNewHolders() {
	m, err := wisbox.NewManager(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	http.Handle("/metrics", metrics.Handler(metrics.NewHolders(m)))
}
