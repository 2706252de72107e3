package admin

import (
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/listproxy/listproxy/telemetry/statusz"
)

// Pages are the pages of the admin port for people. A page whose field is nil or false is absent.
type Pages struct {
	// Status is the page of [statusz.Handler].
	Status http.Handler
	// Flags returns the flags in force.
	Flags func() []statusz.Flag
	// Profiling turns on /debug/pprof/.
	Profiling bool
	// Hosts are the host names that requests for pages and metrics may use, in addition to addresses,
	// localhost, names without a dot and those of Services.
	Hosts []string
}

// profile answers below /debug/pprof/. net/http/pprof also registers its handlers on
// http.DefaultServeMux, but listproxy does not serve that.
func profile(w http.ResponseWriter, r *http.Request) {
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
