package observe

import (
	"net/http"

	"k8s.io/apimachinery/pkg/util/sets"
)

// httpMethods are those that the semantic conventions know.
var httpMethods = sets.New(http.MethodConnect, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions,
	http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodTrace)

// methodName is a request's method as an attribute, and in the name of its span.
func methodName(method string) (attribute, inName string) {
	if httpMethods.Has(method) {
		return method, method
	}
	return "_OTHER", "HTTP"
}
