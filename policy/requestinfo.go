package policy

import (
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// requestInfoFactory reads paths as kube-apiserver does in its default configuration. It is never written to.
var requestInfoFactory = request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// RequestInfo reads a request's method and URL by kube-apiserver's own code (k8s.io/apiserver, RequestInfoFactory). Only
// RequestInfo reads paths, so that all decisions rest on one reading.
//
// u must not be nil, and must have no query: the factory would read watch and fieldSelector from it, less strictly than this
// package does, and log what it cannot decode.
func RequestInfo(method string, u *url.URL) (*request.RequestInfo, error) {
	return requestInfoFactory.NewRequestInfo(&http.Request{Method: method, URL: u})
}
