package admin

import (
	"io"
	"net/http"
	_ "net/http/pprof" // #nosec G108 -- registers in http.DefaultServeMux, which New serves to local clients only
	"net/netip"
	"strings"
	"time"
)

const (
	// pageTimeout is the time within which a client must have read a page.
	pageTimeout = 10 * time.Second
	// profileTimeout is the time within which a client must have read a profile. With ?seconds=, recording it may take minutes.
	profileTimeout = 5 * time.Minute
)

// New returns the handler of the admin port:
//
//   - /livez answers 200 as long as the process answers;
//   - /readyz answers by source: 200 if clients should be sent here, otherwise 503 with a line for each failed check. With
//     ?verbose, it has a line for every check;
//   - /metrics is served by metrics, for Prometheus;
//   - /statusz is the status page, the state in source, also as JSON; / redirects to it;
//   - /flagz has flags: all flags in force, as name=value;
//   - /debug/pprof/ has profiles, for local clients only.
//
// The answers have no secrets, and need no authentication. /livez and /readyz are open to every request. All other paths are
// guarded: hosts has further names that their requests may have as the Host (see guard).
func New(source *Source, metrics http.Handler, flags, hosts []string) http.Handler {
	pages := http.NewServeMux()
	pages.Handle("GET /metrics", metrics)
	pages.Handle("GET /{$}", http.RedirectHandler("statusz", http.StatusFound))
	pages.HandleFunc("GET /statusz", func(w http.ResponseWriter, r *http.Request) { writeStatus(w, r, source.ReadStatus()) })
	// /flagz is for people: like Kubernetes' own /flagz, it promises no format.
	pages.HandleFunc("GET /flagz", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, "listproxy flagz\n\n"+strings.Join(flags, "\n")+"\n")
	})
	root := http.NewServeMux()
	root.Handle("/", guard(hosts, pageTimeout, pages))
	root.Handle("/debug/pprof/", guard(hosts, profileTimeout, onlyLocal(http.DefaultServeMux)))
	root.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
	root.HandleFunc("GET /readyz", source.serveReady)
	return addSecurityHeaders(root)
}

// onlyLocal returns handler for clients on this machine, kubectl port-forward among them. It refuses all others, since a
// profile takes CPU.
func onlyLocal(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !client.Addr().Unmap().IsLoopback() {
			writeText(w, http.StatusForbidden, "Profiles are served to clients on this machine only: use kubectl port-forward.\n")
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// writeText answers with plain text.
func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text) // an error means that the client has gone
}
