package policy

import (
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// requestInfos reads paths as kube-apiserver does in its default configuration. It is never written to.
var requestInfos = request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// RequestInfo reads a request's method and URL by kube-apiserver's own code (k8s.io/apiserver,
// RequestInfoFactory). No other function does so: all decisions rest on the same reading of a request.
//
// The factory also reads watch and fieldSelector from a query, less strictly than this package does, and logs what it
// cannot decode. So callers should give u without a query. u must not be nil.
func RequestInfo(method string, u *url.URL) (*request.RequestInfo, error) {
	return requestInfos.NewRequestInfo(&http.Request{Method: method, URL: u})
}
