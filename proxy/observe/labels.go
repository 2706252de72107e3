package observe

import (
	"maps"
	"math"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

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
	// maxResourceLabels bounds the resources that have a label of their own at a time.
	maxResourceLabels = 512
	// labelRest is how long a resource must not have been asked for before another may take its label.
	labelRest = time.Hour
	// labelUse is the precision of the time at which somebody last asked for a resource.
	labelUse = time.Minute
)

// servedResources are resources that the upstream is known to serve, and their values in metrics,
// "pods" or "deployments.apps". Made-up resources have none. There are at most maxResourceLabels:
// if there is no room, a new one replaces the one that was not asked for longest, if that is
// labelRest ago. The zero value is empty. It is safe for concurrent use; reading takes no lock.
type servedResources struct {
	mu    sync.Mutex
	known atomic.Pointer[map[schema.GroupVersionResource]*servedResource]
}

type servedResource struct {
	label string
	used  atomic.Int64 // in Unix nanoseconds
}

// of returns a resource's label, if it has one.
func (l *servedResources) of(gvr schema.GroupVersionResource, now time.Time) (string, bool) {
	known := l.known.Load()
	if known == nil {
		return OtherLabel, false
	}
	r, ok := (*known)[gvr]
	if !ok {
		return OtherLabel, false
	}
	if now.UnixNano()-r.used.Load() > int64(labelUse) {
		r.used.Store(now.UnixNano())
	}
	return r.label, true
}

// add gives a label to a resource that the upstream serves, if there is room.
func (l *servedResources) add(gvr schema.GroupVersionResource, now time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if label, ok := l.of(gvr, now); ok {
		return label
	}
	grown := map[schema.GroupVersionResource]*servedResource{}
	if known := l.known.Load(); known != nil {
		if len(*known) >= maxResourceLabels && !rests(*known, now) {
			return OtherLabel
		}
		maps.Copy(grown, *known)
	}
	if len(grown) >= maxResourceLabels {
		delete(grown, longestUnused(grown))
	}
	r := &servedResource{label: gvr.GroupResource().String()}
	r.used.Store(now.UnixNano())
	grown[gvr] = r
	l.known.Store(&grown)
	return r.label
}

// rests says whether nobody has asked for one of the resources for labelRest.
func rests(known map[schema.GroupVersionResource]*servedResource, now time.Time) bool {
	return now.UnixNano()-known[longestUnused(known)].used.Load() >= int64(labelRest)
}

func longestUnused(known map[schema.GroupVersionResource]*servedResource) schema.GroupVersionResource {
	var longest schema.GroupVersionResource
	since := int64(math.MaxInt64)
	for gvr, r := range known {
		if used := r.used.Load(); used < since {
			longest, since = gvr, used
		}
	}
	return longest
}

// resource says which resource a request is of, where the upstream serves it: that is so if the
// catalog knows it, and if the upstream has just answered a GET for it with a 2xx. Some aggregated
// API servers have as many resources as they have metrics, so what looks unlike a resource of
// Kubernetes has no label all the same.
func (rec *Record) resource(code int, now time.Time) string {
	gvr := rec.named()
	if gvr.Resource == "" {
		return OtherLabel
	}
	if label, ok := rec.observer.served.of(gvr, now); ok {
		return label
	}
	answered := rec.request.Method == http.MethodGet && code >= http.StatusOK && code < http.StatusMultipleChoices
	if !answered && !rec.observer.serves(gvr) {
		return OtherLabel
	}
	return rec.observer.served.add(gvr, now)
}

// serves says whether the upstream is known to have a resource.
func (o *Observer) serves(gvr schema.GroupVersionResource) bool {
	return o.Serves != nil && o.Serves(gvr.Group, gvr.Version, gvr.Resource)
}

// named is the resource that the path of a request names, if it was not refused; whether there is
// such a resource is not said.
func (rec *Record) named() schema.GroupVersionResource {
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

// nameable says whether group, version and resource are written as those of Kubernetes are.
func nameable(info *request.RequestInfo) bool {
	return (info.APIGroup == "" || len(validation.IsDNS1123Subdomain(info.APIGroup)) == 0) &&
		len(validation.IsDNS1035Label(info.APIVersion)) == 0 && len(validation.IsDNS1035Label(info.Resource)) == 0
}

// verbOf says what a request asks for, as kube-apiserver reads it: a list, a watch, which also a
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

// undefined stands for all status codes that nobody has defined: an aggregated API server, or a pod
// behind kube-apiserver's proxy, can answer with any.
const undefined = -1

// definedCode is a status code with a label of its own, 0 where an answer was broken off before it
// began, or undefined.
func definedCode(code int) int {
	if code != 0 && http.StatusText(code) == "" {
		return undefined
	}
	return code
}

// codeLabel is a definedCode as a label.
func codeLabel(code int) string {
	switch code {
	case 0:
		return noneLabel
	case undefined:
		return OtherLabel
	}
	return strconv.Itoa(code)
}
