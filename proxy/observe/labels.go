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

// servedResources maps resources to label values ("pods", "deployments.apps"). It has only resources that the upstream is known
// to serve, since callers can make up others without end. The first 512 resources (maxResourceValues) keep their values until
// the process ends. All others have [OtherLabel]. The zero value is empty. servedResources is safe for concurrent use.
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

// findOrAdd returns the label value of a resource that the upstream serves. If the resource is new, findOrAdd gives it a value
// of its own, or [OtherLabel] if the map is full.
func (s *servedResources) findOrAdd(gvr schema.GroupVersionResource) string {
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
		return served.findOrAdd(gvr)
	}
	return OtherLabel
}

// isServed reports whether the upstream is known to serve gvr, the request's resource. There are two proofs: a GET of gvr was
// just answered with a 2xx, or the cluster's catalog has gvr.
func (rec *Record) isServed(gvr schema.GroupVersionResource) bool {
	code := rec.response.Code
	if rec.request.Method == http.MethodGet && code >= http.StatusOK && code < http.StatusMultipleChoices {
		return true
	}
	inCatalog := rec.observer.IsServed
	return inCatalog != nil && inCatalog(gvr.Group, gvr.Version, gvr.Resource)
}

// namedResource returns the resource that the request names, which may not exist. It returns the zero value if the path names
// no resource, if Kubernetes would not accept the names, or if the request was neither answered from memory nor forwarded.
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
// servers have a resource for each metric, with names of other forms, which must not become label values.
func hasKubernetesNames(info *request.RequestInfo) bool {
	isValidGroup := info.APIGroup == "" || len(validation.IsDNS1123Subdomain(info.APIGroup)) == 0
	return isValidGroup && len(validation.IsDNS1035Label(info.APIVersion)) == 0 && len(validation.IsDNS1035Label(info.Resource)) == 0
}

// verbLabel returns the label value for the verb of a request, as kube-apiserver reads it: a streaming list is a watch.
func verbLabel(r *http.Request) string {
	parsed := kubehttp.RequestOf(r)
	isListOrWatch := parsed.Info.Verb == VerbList || parsed.Info.Verb == VerbWatch
	switch {
	case !parsed.Info.IsResourceRequest || !isListOrWatch:
		return OtherLabel
	case parsed.LongRunning: // a watch, even if Info.Verb is list: Info.Verb leaves out ?watch=1
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
