package proxy

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// otherLabel is the value of a label for all that has none of its own.
	otherLabel = "other"
	// noneLabel is the value of a label where it does not apply. Prometheus takes an empty value
	// for a label that is not there.
	noneLabel = "none"
	// maxResourceLabels bounds the resources that have a label of their own.
	maxResourceLabels = 512
)

// resourceLabels are the resources with a value of their own in metrics, "pods" or
// "deployments.apps". Whatever callers make up has none. The zero value has none at all. It is safe
// for concurrent use; reading takes no lock.
type resourceLabels struct {
	mu    sync.Mutex
	known atomic.Pointer[map[schema.GroupResource]string]
}

// of returns a resource's label, if it has one.
func (l *resourceLabels) of(gr schema.GroupResource) (string, bool) {
	known := l.known.Load()
	if known == nil {
		return otherLabel, false
	}
	if label, ok := (*known)[gr]; ok {
		return label, true
	}
	return otherLabel, false
}

// add gives a label to a resource that the upstream has, while there is room.
func (l *resourceLabels) add(gr schema.GroupResource) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if label, ok := l.of(gr); ok {
		return label
	}
	old := map[schema.GroupResource]string{}
	if known := l.known.Load(); known != nil {
		old = *known
	}
	if len(old) >= maxResourceLabels {
		return otherLabel
	}
	grown := make(map[schema.GroupResource]string, len(old)+1)
	maps.Copy(grown, old)
	grown[gr] = gr.String()
	l.known.Store(&grown)
	return grown[gr]
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
		return otherLabel
	}
	return strconv.Itoa(code)
}
