package serve

import (
	"log/slog"

	"github.com/wisbox/wisbox/internal/podbook"
	"github.com/wisbox/wisbox/internal/registry"
)

// HideCluster returns the [wisbox.Options.ClusterError] of a server's Manager: it logs errors of the
// cluster, and hides the cluster from clients.
func HideCluster(log *slog.Logger) func(error) error {
	return func(err error) error {
		log.Warn("a Pod can't be used", "error", registry.Quiet(err))
		return podbook.Hide(err)
	}
}
