package observe

import (
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
	// maxResourceLabels bounds the number of resources that have labels of their own.
	maxResourceLabels = 512
)

// servedResources has the labels ("pods", "deployments.apps") of resources that the upstream is known to serve, so that
// callers cannot make up labels. The first maxResourceLabels resources keep their labels until the process ends. All
// others have [OtherLabel]. The zero value is empty. It is safe for concurrent use.
type servedResources struct {
	mu    sync.RWMutex
	known map[schema.GroupVersionResource]string
}

// label returns a resource's label; false if the resource has none.
func (s *servedResources) label(gvr schema.GroupVersionResource) (string, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	label, ok := s.known[gvr]
	return label, ok
}

// add returns the label of a resource that the upstream serves. A new resource gets a label if there is room.
func (s *servedResources) add(gvr schema.GroupVersionResource) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if label, ok := s.known[gvr]; ok {
		return label
	}
	if len(s.known) >= maxResourceLabels {
		return OtherLabel
	}
	if s.known == nil {
		s.known = map[schema.GroupVersionResource]string{}
	}
	s.known[gvr] = gvr.GroupResource().String()
	return s.known[gvr]
}

// resourceLabel returns the label of the request's resource, if the upstream serves the resource; otherwise
// [OtherLabel]. The upstream serves a resource that the cluster's catalog has. It also serves a resource if it has just
// answered a GET for it with a 2xx.
func (rec *Record) resourceLabel() string {
	gvr := rec.namedResource()
	if gvr.Resource == "" {
		return OtherLabel
	}
	if label, ok := rec.observer.served.label(gvr); ok {
		return label
	}
	code := rec.response.Code
	succeeded := rec.request.Method == http.MethodGet && code >= http.StatusOK && code < http.StatusMultipleChoices
	if succeeded || rec.observer.serves(gvr) {
		return rec.observer.served.add(gvr)
	}
	return OtherLabel
}

// serves reports whether the upstream is known to serve a resource.
func (o *Observer) serves(gvr schema.GroupVersionResource) bool {
	return o.Serves != nil && o.Serves(gvr.Group, gvr.Version, gvr.Resource)
}

// namedResource returns the resource that the request names, which may not exist. It returns zero for a refused request,
// and for a path without a resource or with names that Kubernetes would not accept.
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

// hasKubernetesNames reports whether group, version and resource have the form that Kubernetes demands. Aggregated API
// servers need not keep to it: some have a resource for each of their metrics.
func hasKubernetesNames(info *request.RequestInfo) bool {
	return (info.APIGroup == "" || len(validation.IsDNS1123Subdomain(info.APIGroup)) == 0) &&
		len(validation.IsDNS1035Label(info.APIVersion)) == 0 && len(validation.IsDNS1035Label(info.Resource)) == 0
}

// verbLabel returns the label of the verb of a request as kube-apiserver reads it. A streaming list is a watch.
func verbLabel(r *http.Request) string {
	parsed := kubehttp.RequestOf(r)
	info := parsed.Info
	isListOrWatch := info.IsResourceRequest && (info.Verb == "list" || info.Verb == "watch")
	switch {
	case !isListOrWatch:
		return OtherLabel
	case parsed.LongRunning: // info is parsed without the query, so the verb of ?watch=1 is list
		return VerbWatch
	}
	return VerbList
}

// codeLabel returns the label of a status code. It is none for 0: the answer was broken off before it began. It is other
// for a code that HTTP does not define, since an aggregated API server, or a pod behind kube-apiserver's proxy, can
// answer with any code.
func codeLabel(code int) string {
	switch {
	case code == 0:
		return noneLabel
	case http.StatusText(code) == "":
		return OtherLabel
	}
	return strconv.Itoa(code)
}

// OrNone returns value, or "none" if it is empty, for a label that does not apply.
func OrNone(value string) string {
	if value == "" {
		return noneLabel
	}
	return value
}
