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
	// OtherLabel is the label's value for everything that has no value of its own.
	OtherLabel = "other"
	// noneLabel is the value of a label where it does not apply. Prometheus takes an empty value
	// for a label that is not there.
	noneLabel = "none"
	// maxResourceLabels bounds the resources that have a label of their own.
	maxResourceLabels = 512
)

// servedResources are resources that the upstream is known to serve, and their values in metrics,
// "pods" or "deployments.apps". Made-up resources have none. The first maxResourceLabels have one
// until the process ends, all further ones are [OtherLabel]. The zero value is empty. It is safe for
// concurrent use.
type servedResources struct {
	mu    sync.RWMutex
	known map[schema.GroupVersionResource]string
}

// of returns a resource's label, if it has one.
func (l *servedResources) of(gvr schema.GroupVersionResource) (string, bool) {
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

// resource returns which resource a request is of, where the upstream serves it: that is so if the
// catalog knows it, or if the upstream has just answered a GET for it with a 2xx. Some aggregated
// API servers have as many resources as they have metrics, so what looks unlike a resource of
// Kubernetes has no label all the same.
func (rec *Record) resource(code int) string {
	gvr := rec.namedResource()
	if gvr.Resource == "" {
		return OtherLabel
	}
	if label, ok := rec.observer.served.of(gvr); ok {
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

// namedResource is the resource that the path of a request names, if it was not refused. There may be no such
// resource.
func (rec *Record) namedResource() schema.GroupVersionResource {
	switch {
	case rec.labels.decision != DecisionServe && rec.labels.decision != DecisionForward:
		return schema.GroupVersionResource{}
	case rec.list.Resource != "":
		return schema.GroupVersionResource{Group: rec.list.Group, Version: rec.list.Version, Resource: rec.list.Resource}
	}
	info := kubehttp.Of(rec.request).Info
	if !info.IsResourceRequest || !nameable(info) {
		return schema.GroupVersionResource{}
	}
	return schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
}

// nameable reports whether group, version and resource are written as those of Kubernetes are.
func nameable(info *request.RequestInfo) bool {
	return (info.APIGroup == "" || len(validation.IsDNS1123Subdomain(info.APIGroup)) == 0) &&
		len(validation.IsDNS1035Label(info.APIVersion)) == 0 && len(validation.IsDNS1035Label(info.Resource)) == 0
}

// verbOf returns what a request asks for, as kube-apiserver reads it: a list, a watch, which also a
// streaming list is, or something else.
func verbOf(r *http.Request) string {
	switch asks := kubehttp.Of(r); {
	case !asks.Info.IsResourceRequest || asks.Info.Verb != "list" && asks.Info.Verb != "watch":
		return OtherLabel
	case asks.LongRunning:
		return VerbWatch
	}
	return VerbList
}

// codeLabel is a status code as a label: none where an answer was broken off before it began, other
// where nobody has defined the code. An aggregated API server, or a pod behind kube-apiserver's
// proxy, can answer with any.
func codeLabel(code int) string {
	switch {
	case code == 0:
		return noneLabel
	case http.StatusText(code) == "":
		return OtherLabel
	}
	return strconv.Itoa(code)
}
