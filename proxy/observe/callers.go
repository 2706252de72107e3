package observe

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

// ReasonStreaming is the reason of streaming lists among callers; they are watches otherwise.
const ReasonStreaming = "streaming"

// Callers returns the programs whose lists were forwarded most often.
func (o *Observer) Callers() []statusz.Caller { return o.callers.Status() }

// Streaming returns how many streaming lists were forwarded and succeeded, by the label of the
// resource.
func (o *Observer) Streaming() map[string]int64 { return o.streaming.read() }

// StreamingEnded returns how many of them have ended: metrics count requests when they do.
func (o *Observer) StreamingEnded() int64 { return o.streaming.ended.Load() }

// streamingLists counts streaming lists by the label of their resource. The zero value has counted
// none. It is safe for concurrent use.
type streamingLists struct {
	mu     sync.Mutex
	counts map[string]int64
	ended  atomic.Int64
}

// add counts one. There are few labels (resourceLabels), and so few counts.
func (l *streamingLists) add(label string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts = map[string]int64{}
	}
	if _, known := l.counts[label]; !known && len(l.counts) >= maxResourceLabels {
		label = OtherLabel
	}
	l.counts[label]++
}

func (l *streamingLists) read() map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}

// countCaller counts, when an answer begins, the program that sent a list which was forwarded and
// succeeded. Refused lists do not count: they cost the upstream little, and anybody could send them
// under any name.
func (s *Record) countCaller(code int) {
	if s.observer == nil || s.labels.decision != DecisionForward || code != http.StatusOK {
		return
	}
	why := s.labels.reason
	if !OfLists(why) {
		if why != string(reason.Watch) || !streamsList(s.request.URL) {
			return
		}
		why = ReasonStreaming
		s.streams = true
		s.observer.streaming.add(s.resource(code, time.Now())) // it may not end for long
	}
	s.observer.callers.Count(s.request.UserAgent(), why)
}

// OfLists says whether requests that are forwarded for a reason are lists.
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
