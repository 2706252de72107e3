package admin

import (
	"fmt"
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

// Why /flagz is not Kubernetes' own (k8s.io/apiserver/pkg/server/flagz in 1.36; component-base has
// none any more): Kubernetes does not want its page to be parsed, so it has a warning on top, and one
// of four separators at random between name and value. listproxy's /flagz is documented as
// name=value. And for one page of text, that package would bring in apiserver's feature gates,
// negotiation and codecs.

// flagText lists flags, one a line, in the order given, as name=value.
func flagText(flags []statusz.Flag) string {
	var text strings.Builder
	text.WriteString("listproxy flagz\n\n")
	for _, f := range flags {
		_, _ = fmt.Fprintf(&text, "%s=%s\n", f.Name, f.Value)
	}
	return text.String()
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
