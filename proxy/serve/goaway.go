package serve

import (
	"math/rand/v2"
	"net/http"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// CloseConnections returns a handler that answers like next, and makes some clients close their connection with the answer:
//
//   - While isDraining returns true, every client, so that it sends no request on a connection that is about to be closed.
//   - For a request over HTTP/2, its client with the probability goawayChance (0 to 1). The client then opens another
//     connection, which may lead to another replica. kube-apiserver's WithProbabilisticGoaway does the same, but its package
//     imports all of priority and fairness.
//
// An answer to an upgrade needs the Connection header itself. Over HTTP/2 net/http sends a GOAWAY in place of the header, and
// requests in flight still finish.
func CloseConnections(next http.Handler, isDraining func() bool, goawayChance float64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isChosen := r.ProtoMajor == 2 && rand.Float64() < goawayChance // #nosec G404 -- only spreads clients
		if (isDraining() || isChosen) && kubehttp.RequestOf(r).Upgrade == "" {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
