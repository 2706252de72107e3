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
	// noneLabel is the value of a label that does not apply. To Prometheus a label with an empty value is not there.
	noneLabel = "none"
	// maxResourceLabels bounds the number of resources that have labels.
	maxResourceLabels = 512
)

// servedResources has the labels ("pods", "deployments.apps") of resources that the upstream is known to serve. Made-up
// resources have none. The first maxResourceLabels keep theirs until the process ends, all others are [OtherLabel]. The
// zero value is empty. It is safe for concurrent use.
type servedResources struct {
	mu    sync.RWMutex
	known map[schema.GroupVersionResource]string
}

// label returns a resource's label, if it has one.
func (l *servedResources) label(gvr schema.GroupVersionResource) (string, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	label, ok := l.known[gvr]
	return label, ok
}

// add gives a label to a resource that the upstream serves, if there is room.
func (l *servedResources) add(gvr schema.GroupVersionResource) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if label, ok := l.known[gvr]; ok {
		return label
	}
	if len(l.known) >= maxResourceLabels {
		return OtherLabel
	}
	if l.known == nil {
		l.known = map[schema.GroupVersionResource]string{}
	}
	l.known[gvr] = gvr.GroupResource().String()
	return l.known[gvr]
}

// resource returns the label of the request's resource, if the upstream serves it: if the cluster's catalog has it, or
// the upstream has just answered a GET for it with a 2xx. It is [OtherLabel] for names that are unlike Kubernetes':
// some aggregated API servers have as many resources as they have metrics.
func (rec *Record) resource(code int) string {
	gvr := rec.namedResource()
	if gvr.Resource == "" {
		return OtherLabel
	}
	if label, ok := rec.observer.served.label(gvr); ok {
		return label
	}
	answered := rec.request.Method == http.MethodGet && code >= http.StatusOK && code < http.StatusMultipleChoices
	if !answered && !rec.observer.serves(gvr) {
		return OtherLabel
	}
	return rec.observer.served.add(gvr)
}

// serves reports whether the upstream is known to have a resource.
func (o *Observer) serves(gvr schema.GroupVersionResource) bool {
	return o.Serves != nil && o.Serves(gvr.Group, gvr.Version, gvr.Resource)
}

// namedResource returns the resource in the path of the request, unless it was refused. There may be no such resource.
func (rec *Record) namedResource() schema.GroupVersionResource {
	switch {
	case rec.labels.decision != DecisionServe && rec.labels.decision != DecisionForward:
		return schema.GroupVersionResource{}
	case rec.list.Resource != "":
		return schema.GroupVersionResource{Group: rec.list.Group, Version: rec.list.Version, Resource: rec.list.Resource}
	}
	info := kubehttp.RequestOf(rec.request).Info
	if !info.IsResourceRequest || !hasKubernetesNames(info) {
		return schema.GroupVersionResource{}
	}
	return schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
}

// hasKubernetesNames reports whether group, version and resource have the form that Kubernetes demands.
func hasKubernetesNames(info *request.RequestInfo) bool {
	return (info.APIGroup == "" || len(validation.IsDNS1123Subdomain(info.APIGroup)) == 0) &&
		len(validation.IsDNS1035Label(info.APIVersion)) == 0 && len(validation.IsDNS1035Label(info.Resource)) == 0
}

// verbOf returns the verb of a request as kube-apiserver reads it: list, watch (also for a streaming list), or other.
func verbOf(r *http.Request) string {
	switch parsed := kubehttp.RequestOf(r); {
	case !parsed.Info.IsResourceRequest || parsed.Info.Verb != "list" && parsed.Info.Verb != "watch":
		return OtherLabel
	case parsed.LongRunning:
		return VerbWatch
	}
	return VerbList
}

// codeLabel returns the label of a status code: none if an answer was broken off before it began, and other if the code
// is not defined, since an aggregated API server, or a pod behind kube-apiserver's proxy, can answer with any code.
func codeLabel(code int) string {
	switch {
	case code == 0:
		return noneLabel
	case http.StatusText(code) == "":
		return OtherLabel
	}
	return strconv.Itoa(code)
}
