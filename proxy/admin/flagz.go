package admin

import (
	"fmt"
	"strings"

	"github.com/listproxy/listproxy/telemetry/statusz"
)

// /flagz is listproxy's own and not Kubernetes' (k8s.io/apiserver/pkg/server/flagz in 1.36;
// component-base has none any more): Kubernetes does not want its page to be parsed, so it has a
// warning on top, and one of four separators at random between name and value. listproxy's /flagz is
// documented as name=value. And for one page of text, that package would bring in apiserver's feature
// gates, negotiation and codecs.

// flagText lists flags, one a line, in the order given, as name=value.
func flagText(flags []statusz.Flag) string {
	var text strings.Builder
	text.WriteString("listproxy flagz\n\n")
	for _, f := range flags {
		_, _ = fmt.Fprintf(&text, "%s=%s\n", f.Name, f.Value)
	}
	return text.String()
}
