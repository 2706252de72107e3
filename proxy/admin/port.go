package admin

import (
	"io"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"time"
)

// Config is what the operators' port shows.
type Config struct {
	Ready   Readiness
	Metrics http.Handler
	Status  *Source
	// Flags are all flags in force, as name=value. None has a secret for a value.
	Flags []string
	// Hosts are further names by which the port may be asked (guard).
	Hosts []string
}

// New returns the handler of the operators' port:
//
//   - /livez says that the process answers, always 200;
//   - /readyz says whether it should get traffic: 200, or 503 with a line for everything that is not
//     right; with ?verbose, a line for every check in any case;
//   - /metrics is for Prometheus;
//   - / leads to /statusz, the status page, also as JSON;
//   - /flagz; and, for who is on this machine, /debug/pprof/.
//
// The answers hold no secrets and need no authentication. All but the probes are for those who know
// the port by its name (guard).
func New(c Config) http.Handler {
	pages := http.NewServeMux()
	pages.Handle("GET /metrics", c.Metrics)
	pages.Handle("GET /{$}", http.RedirectHandler("statusz", http.StatusFound))
	pages.HandleFunc("GET /statusz", c.Status.serve)
	// As Kubernetes' /flagz, but in a form that can be parsed, and is always the same.
	pages.HandleFunc("GET /flagz", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, "listproxy flagz\n\n"+strings.Join(c.Flags, "\n")+"\n")
	})
	port := http.NewServeMux()
	port.Handle("/", guard(c.Hosts, 16, 10*time.Second, pages))
	port.Handle("/debug/pprof/", guard(c.Hosts, 2, 5*time.Minute, http.HandlerFunc(profile)))
	port.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
	port.HandleFunc("GET /readyz", c.Ready.serve)
	return hardened(port)
}

// profile answers as net/http/pprof does on the mux that all packages share, but only to who is on
// this machine, as kubectl port-forward is: a profile takes CPU.
func profile(w http.ResponseWriter, r *http.Request) {
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().Unmap().IsLoopback() {
		writeText(w, http.StatusForbidden, "Profiles are for who is on this machine: use kubectl port-forward.\n")
		return
	}
	switch strings.TrimPrefix(r.URL.Path, "/debug/pprof/") {
	case "cmdline":
		pprof.Cmdline(w, r)
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}

// serve answers /readyz.
func (r Readiness) serve(w http.ResponseWriter, req *http.Request) {
	checks := r.Checks()
	code, verdict := http.StatusOK, "ok"
	if !allOK(checks) {
		code, verdict = http.StatusServiceUnavailable, "not ready"
	}
	var text strings.Builder
	for _, c := range checks {
		if !c.OK || req.URL.Query().Has("verbose") {
			text.WriteString(c.String() + "\n")
		}
	}
	writeText(w, code, text.String()+verdict)
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	// An error means that the client has gone.
	_, _ = io.WriteString(w, text)
}
