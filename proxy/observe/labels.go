package observe

import (
	"cmp"
	"net/http"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

const (
	// OtherLabel is the value of a label for everything that has no value of its own.
	OtherLabel = "other"
	// noneLabel is the value of a label that does not apply. Prometheus drops labels with empty values.
	noneLabel = "none"
	// maxResourceValues bounds the number of resources with a label value of their own. Each version of a resource counts.
	maxResourceValues = 512
)

// servedResources maps resources to label values ("pods", "deployments.apps"). It has only resources that the upstream is known to
// serve, since callers could make up any others. The first maxResourceValues resources keep their values until the process ends.
// All others have [OtherLabel]. The zero value is empty. servedResources is safe for concurrent use.
type servedResources struct {
	mu     sync.RWMutex
	values map[schema.GroupVersionResource]string
}

// find returns a resource's label value, or false if the resource has none.
func (s *servedResources) find(gvr schema.GroupVersionResource) (string, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	value, ok := s.values[gvr]
	return value, ok
}

// learn returns the label value of a resource that the upstream serves. A new resource gets a value if there is room.
func (s *servedResources) learn(gvr schema.GroupVersionResource) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.values[gvr]; !ok && len(s.values) >= maxResourceValues {
		return OtherLabel
	}
	if s.values == nil {
		s.values = map[schema.GroupVersionResource]string{}
	}
	s.values[gvr] = gvr.GroupResource().String()
	return s.values[gvr]
}

// resourceLabel returns the label value of the request's resource, or [OtherLabel] if the upstream is not known to serve it.
func (rec *Record) resourceLabel() string {
	gvr := rec.namedResource()
	if gvr.Resource == "" {
		return OtherLabel
	}
	served := &rec.observer.served
	if value, ok := served.find(gvr); ok {
		return value
	}
	if rec.isServed(gvr) {
		return served.learn(gvr)
	}
	return OtherLabel
}

// isServed reports whether the upstream serves gvr, the request's resource: the request is a GET that was answered with a 2xx, or
// the cluster's catalog has gvr.
func (rec *Record) isServed(gvr schema.GroupVersionResource) bool {
	code := rec.response.Code
	if rec.request.Method == http.MethodGet && code >= http.StatusOK && code < http.StatusMultipleChoices {
		return true
	}
	inCatalog := rec.observer.IsServed
	return inCatalog != nil && inCatalog(gvr.Group, gvr.Version, gvr.Resource)
}

// namedResource returns the resource that the request names, which may not exist. It returns the zero value in three cases: the
// request was neither answered from memory nor forwarded, its path has no resource, or Kubernetes would not accept the names.
func (rec *Record) namedResource() schema.GroupVersionResource {
	if rec.labels.decision != DecisionServe && rec.labels.decision != DecisionForward {
		return schema.GroupVersionResource{}
	}
	if rec.asked.Resource != "" {
		return schema.GroupVersionResource{Group: rec.asked.Group, Version: rec.asked.Version, Resource: rec.asked.Resource}
	}
	info := kubehttp.RequestOf(rec.request).Info
	if !info.IsResourceRequest || !hasKubernetesNames(info) {
		return schema.GroupVersionResource{}
	}
	return schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
}

// hasKubernetesNames reports whether group, version and resource have the form that Kubernetes demands. Some aggregated API
// servers have a resource for each of their metrics, in other forms. These must not become label values.
func hasKubernetesNames(info *request.RequestInfo) bool {
	return (info.APIGroup == "" || len(validation.IsDNS1123Subdomain(info.APIGroup)) == 0) &&
		len(validation.IsDNS1035Label(info.APIVersion)) == 0 && len(validation.IsDNS1035Label(info.Resource)) == 0
}

// verbLabel returns the label value for the verb of a request, as kube-apiserver reads it: a streaming list is a watch.
func verbLabel(r *http.Request) string {
	parsed := kubehttp.RequestOf(r)
	info := parsed.Info
	if !info.IsResourceRequest || info.Verb != "list" && info.Verb != "watch" {
		return OtherLabel
	}
	if parsed.LongRunning { // info does not cover the query, so its verb for ?watch=1 is list
		return VerbWatch
	}
	return VerbList
}

// codeLabel returns the label value for a status code: "none" for 0, which means that no answer began, and "other" for a code
// that HTTP does not define. Aggregated API servers, and pods behind kube-apiserver's proxy, can answer with any code.
func codeLabel(code int) string {
	switch {
	case code == 0:
		return noneLabel
	case http.StatusText(code) == "":
		return OtherLabel
	}
	return strconv.Itoa(code)
}

// OrNone returns value, or "none" if it is empty because the label does not apply.
func OrNone(value string) string { return cmp.Or(value, noneLabel) }
