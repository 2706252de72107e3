package serve

import (
	"math/rand/v2"
	"net/http"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// CloseConnections returns a handler that answers like next, and makes some clients close their connection after the answer:
//
//   - While isDraining returns true, every client closes its connection. So none sends a request on one that is about to be
//     closed by the server.
//   - Over HTTP/2, the client of a request closes it with the probability goawayChance (0 to 1). The client then opens another
//     connection, which may lead to another replica. kube-apiserver's WithProbabilisticGoaway does the same, but its package
//     imports all of priority and fairness.
//
// The handler sets Connection: close. Over HTTP/2 net/http sends a GOAWAY in place of the header, and requests in flight still
// finish. An answer to an upgrade stays as it is, since it has a Connection header of its own.
func CloseConnections(next http.Handler, isDraining func() bool, goawayChance float64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		draw := rand.Float64() // #nosec G404 -- only spreads clients
		isChosen := r.ProtoMajor == 2 && draw < goawayChance
		if (isDraining() || isChosen) && kubehttp.RequestOf(r).Upgrade == "" {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
