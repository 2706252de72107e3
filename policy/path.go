package policy

import (
	"net/http"
	"net/url"
	"regexp"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/listproxy/listproxy/policy/reason"
)

// requestInfoFactory reads paths as kube-apiserver does in its default configuration. It is never written to.
var requestInfoFactory = request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// RequestInfo reads a request's method and URL by kube-apiserver's own code (k8s.io/apiserver, RequestInfoFactory). All
// decisions take what a path means from RequestInfo, so that there is only one reading.
//
// u must not be nil, and must have no query: the factory would read watch and fieldSelector from it, less strictly than this
// package does, and log what it cannot decode.
func RequestInfo(method string, u *url.URL) (*request.RequestInfo, error) {
	return requestInfoFactory.NewRequestInfo(&http.Request{Method: method, URL: u})
}

// dnsLabel matches a DNS label of any length. Versions, resources, namespaces and the parts of an API group's name have this
// form.
const dnsLabel = `[a-z0-9](?:[-a-z0-9]*[a-z0-9])?`

// canonicalPath matches the paths of lists, without any %xx. RequestInfo and the upstream's router agree on what each of
// these paths means, with one exception, which parsePath handles.
var canonicalPath = regexp.MustCompile(
	`^/(?:api|apis/` + dnsLabel + `(?:\.` + dnsLabel + `)*)/` + dnsLabel + `/(?:namespaces/` + dnsLabel + `/)?` + dnsLabel + `$`)

// parsePath checks r's method and path. If r is a list with a canonical path, parsePath sets req's group, version, resource and
// namespace, and returns None. It returns a reason to forward any other request. info is what RequestInfo has read.
func parsePath(r *http.Request, info *request.RequestInfo, req *Request) reason.Reason {
	switch {
	case r.Method != http.MethodGet, !info.IsResourceRequest:
		return reason.NotList
	case info.Verb == "watch": // the path has the deprecated /watch/; parseQuery reads the parameter watch
		return reason.Watch
	case info.Verb != "list", info.Subresource != "", info.Name != "":
		return reason.NotList
	case !canonicalPath.MatchString(r.URL.EscapedPath()):
		return reason.NotCanonical
	case info.Namespace != "" && info.Resource == "namespaces":
		// RequestInfo takes .../namespaces/x/namespaces for a list, but the upstream's router knows no such path.
		return reason.NotCanonical
	case r.RequestURI != "" && r.RequestURI != r.URL.RequestURI():
		// The request line is in absolute form, as for a forward proxy: "GET http://host/path".
		return reason.NotCanonical
	}
	req.Group = info.APIGroup
	req.Version = info.APIVersion
	req.Resource = info.Resource
	req.Namespace = info.Namespace
	return reason.None
}
