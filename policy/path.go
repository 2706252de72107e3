package policy

import (
	"net/http"
	"regexp"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/listproxy/listproxy/policy/reason"
)

// label matches the names that Kubernetes allows in CustomResourceDefinitions, and that built-in resources keep to, too,
// whatever their length. None of these characters has a second spelling in a URL.
const label = `[a-z0-9](?:[-a-z0-9]*[a-z0-9])?`

// canonicalPath matches the paths of lists. RequestInfo reads each of them in one way only.
var canonicalPath = regexp.MustCompile(
	`^/(?:api|apis/` + label + `(?:\.` + label + `)*)/` + label + `/(?:namespaces/` + label + `/)?` + label + `$`)

// parsePath reads method and path into req. Group, version, resource and namespace are set only if it returns None.
func parsePath(r *http.Request, info *request.RequestInfo, req *Request) reason.Reason {
	switch {
	case r.Method != http.MethodGet, !info.IsResourceRequest:
		return reason.NotList
	case info.Verb == "watch":
		return reason.Watch
	case info.Verb != "list", info.Subresource != "", info.Name != "":
		return reason.NotList
	case !canonicalPath.MatchString(r.URL.EscapedPath()):
		return reason.NotCanonical
	case info.Namespace != "" && info.Resource == "namespaces":
		// RequestInfo takes .../namespaces/x/namespaces for a list, but the upstream's router knows no such path.
		return reason.NotCanonical
	case r.RequestURI != "" && r.RequestURI != r.URL.RequestURI():
		// A request line in absolute form, as to a forward proxy ("GET http://host/path"), is not interpreted here.
		return reason.NotCanonical
	}
	req.Group = info.APIGroup
	req.Version = info.APIVersion
	req.Resource = info.Resource
	req.Namespace = info.Namespace
	return reason.None
}
