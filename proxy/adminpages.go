package proxy

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/listproxy/listproxy/telemetry"
)

// AdminPages are the pages of the admin port for people. What is nil or false is not there.
type AdminPages struct {
	// Status is the page of [telemetry.StatusHandler].
	Status http.Handler
	// Flags returns the flags in force.
	Flags func() []telemetry.FlagStatus
	// Profiling turns on /debug/pprof/.
	Profiling bool
	// Hosts are names by which the pages and metrics may be asked for, beside addresses, localhost, names
	// of one label and those of Services.
	Hosts []string
}

// flagText lists flags, one a line, in the order given, as kube-apiserver's /flagz does.
func flagText(flags []telemetry.FlagStatus) string {
	var text strings.Builder
	text.WriteString("listproxy flagz\n\n")
	for _, f := range flags {
		_, _ = fmt.Fprintf(&text, "%s=%s\n", f.Name, f.Value)
	}
	return text.String()
}

// profile answers below /debug/pprof/. net/http/pprof's own handlers are on http.DefaultServeMux,
// which nobody serves.
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
