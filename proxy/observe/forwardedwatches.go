package observe

import (
	"maps"
	"net/url"
	"strings"
	"sync"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// ReasonStreaming is the reason of streaming lists among callers and on the status page.
const ReasonStreaming = "streaming"

// Streaming returns how many streaming lists were forwarded and succeeded, by the label of the
// resource. They count when they begin.
func (o *Observer) Streaming() map[string]int64 {
	o.watches.mu.Lock()
	defer o.watches.mu.Unlock()
	return maps.Clone(o.watches.streaming)
}

// WatchesEnded returns how many forwarded watches have ended. Metrics count them then, and do not
// tell them from lists that were forwarded for the same reason.
func (o *Observer) WatchesEnded() map[ForwardedWatch]int64 {
	o.watches.mu.Lock()
	defer o.watches.mu.Unlock()
	return maps.Clone(o.watches.ended)
}

// ForwardedWatch has the labels with which metrics count a forwarded watch.
type ForwardedWatch struct {
	Resource, Reason string
	Newest           bool // it asked for the newest state
	Streaming        bool // it is one of those of [Observer.Streaming]
}

// forwardedWatches counts forwarded watches. The zero value has counted none. It is safe for
// concurrent use.
type forwardedWatches struct {
	mu        sync.Mutex
	streaming map[string]int64
	ended     map[ForwardedWatch]int64
}

// beginStreaming counts a streaming list. There are few labels (resourceLabels), and so few counts.
func (f *forwardedWatches) beginStreaming(label string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streaming == nil {
		f.streaming = map[string]int64{}
	}
	if _, known := f.streaming[label]; !known && len(f.streaming) >= maxResourceLabels {
		label = OtherLabel
	}
	f.streaming[label]++
}

// end counts a watch that has ended.
func (f *forwardedWatches) end(watch ForwardedWatch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended == nil {
		f.ended = map[ForwardedWatch]int64{}
	}
	f.ended[watch]++
}

// isWatch says whether the request is a watch, for whatever reason it was forwarded.
func (rec *Record) isWatch() bool {
	return rec.labels.reason == string(reason.Watch) || kubehttp.Of(rec.request).Watch
}

// endWatch counts a forwarded watch at its end, after metrics, and with the label that they have.
func (rec *Record) endWatch(resource string) {
	if rec.labels.decision == DecisionForward && rec.isWatch() {
		rec.observer.watches.end(ForwardedWatch{
			Resource: resource, Reason: rec.labels.reason, Newest: rec.labels.semantics == policy.MostRecent, Streaming: rec.streams,
		})
	}
}

// OfLists says whether lists are forwarded for a reason. Watches may be, too (isWatch).
func OfLists(why string) bool {
	return why != string(reason.NotList) && why != string(reason.Watch)
}

// streamsList says whether a watch begins with the present state: a streaming list (KEP-3157).
func streamsList(u *url.URL) bool {
	if u == nil || !strings.Contains(u.RawQuery, "sendInitialEvents") {
		return false // as nearly all, without reading the query
	}
	query := u.Query()
	// As k8s.io/apimachinery reads it (pkg/runtime, Convert_Slice_string_To_Pointer_bool).
	value := query.Get("sendInitialEvents")
	return query.Has("sendInitialEvents") && value != "0" && !strings.EqualFold(value, "false")
}
