package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/inflight"
	"github.com/listproxy/listproxy/proxy/internal/observetest"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/telemetry/statusz"
	"github.com/listproxy/listproxy/test/expect"
)

// newStatusSource has two collections, and nothing else to say.
func newStatusSource(o *observe.Observer, metrics prometheus.Gatherer, collections ...snapshot.CollectionStats) *StatusSource {
	return &StatusSource{
		State: State{
			Collections: func() []snapshot.CollectionStats { return collections }, Staleness: 90 * time.Second,
			Stored:      func() (bytes, bound int64) { return 10, 100 },
			Compression: func() gzip.CompressorStats { return gzip.CompressorStats{Kept: 7} },
		},
		Version: "v1", Upstream: "https://kubernetes", Started: time.Now(), Metrics: metrics, Observer: o,
		Ready: func() (bool, []statusz.Check) {
			return true, []statusz.Check{{Name: "serving", OK: true}}
		},
		Window:          func(schema.GroupVersionResource) time.Duration { return 150 * time.Second },
		CompressedBound: 70,
		Flags:           func() []statusz.Flag { return []statusz.Flag{{Name: "config", Value: "x"}} },
	}
}

func collectionStats(resource string, heard time.Duration, absence reason.Reason) snapshot.CollectionStats {
	now := time.Now()
	return snapshot.CollectionStats{
		Resource: snapshot.Resource{
			GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: resource}, Representation: media.JSON,
		},
		Absence: absence, Objects: 3, Versions: 2, Bytes: 10, Spans: []snapshot.Span{{From: 1, To: 4}, {From: 6, To: 9}},
		Heard: now.Add(-heard), Oldest: now.Add(-time.Minute), Used: now.Add(-time.Second),
	}
}

// answerWith begins an answer with that code, the upstream's for what is forwarded.
func answerWith(s *observe.Record, w http.ResponseWriter, code int) {
	s.Answered(code)
	w.WriteHeader(code)
}

// TestStatusIsWhatMetricsSay: requests are counted once, and shown twice.
func TestStatusIsWhatMetricsSay(t *testing.T) {
	o, metrics := observetest.New(t, nil)
	pods := policy.Request{Version: "v1", Resource: "pods"}
	request := func(target, agent string, reason reason.Reason, code int) {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.Header.Set("User-Agent", agent)
		observetest.Request(o, r, func(s *observe.Record, w http.ResponseWriter) {
			s.Decided(pods, policy.Any, reason)
			if reason == "" {
				s.Serving(observe.Served{Bytes: 1000})
			}
			answerWith(s, w, code)
		})
	}
	const list, stream = "/api/v1/pods?resourceVersion=0", "/api/v1/pods?watch=1&sendInitialEvents=true"
	for range 6 {
		request(list, "a/1", "", 200)
	}
	request(list, "a/1 (linux)", reason.MostRecent, 200)
	request(list, "a/1", reason.MostRecent, 200)
	request(list, "b/1", reason.Representation, 200)
	request(list, "nobody/1", reason.Anonymous, 401)
	request(stream, "a/1", reason.Watch, 200)
	request(stream, "nobody/1", reason.Watch, 403)
	request("/api/v1/pods?watch=1", "a/1", reason.Watch, 200)
	request("/healthz", "a/1", reason.NotList, 200)
	observetest.Request(o, httptest.NewRequest(http.MethodGet, list, nil), func(s *observe.Record, w http.ResponseWriter) {
		s.Refused(w.Header(), string(inflight.OverloadTimeOut))
		answerWith(s, w, http.StatusTooManyRequests)
	})
	observetest.Request(o, httptest.NewRequest(http.MethodGet, "/apis/x/v1/widgets?watch=1&sendInitialEvents=true", nil), func(s *observe.Record, w http.ResponseWriter) {
		s.Decided(policy.Request{Group: "x", Version: "v1", Resource: "widgets"}, "", reason.Watch)
		answerWith(s, w, http.StatusOK)
	})

	stats := collectionStats("pods", 0, reason.None)
	stats.Feed.Losses = map[reason.Reason]uint64{reason.Expired: 2}
	got := newStatusSource(o, metrics.Gatherer(), stats).Read()
	if got.Recent.TooMany != 1 || got.Recent.UpstreamTooMany != 0 {
		t.Errorf("429 by listproxy %d times, by kube-apiserver %d times", got.Recent.TooMany, got.Recent.UpstreamTooMany)
	}
	share, allShare := 6.0/11, 6.0/12
	words := reason.Reason.Summary
	want := statusz.Lists{
		Answered: 6, Forwarded: 4, Streaming: 2, Refused: 1, Other: 3, Share: &allShare, SavedBytes: 6000,
		Reasons: []statusz.Reason{
			{Reason: "most-recent", Lists: 2, Meaning: words(reason.MostRecent)},
			{Reason: "streaming", Lists: 2, Meaning: got.Lists.Reasons[1].Meaning},
			{Reason: "anonymous", Lists: 1, Meaning: words(reason.Anonymous)},
			{Reason: "representation", Lists: 1, Meaning: words(reason.Representation)},
		},
	}
	if diff := cmp.Diff(want, got.Lists); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
	resources := []statusz.Resource{
		{Resource: "pods", Answered: 6, Forwarded: 4, Streaming: 1, Share: &share, Reason: "most-recent", ReasonLists: 2},
		{Resource: "widgets.x", Streaming: 1, Share: new(float64), Reason: "streaming", ReasonLists: 1},
	}
	if diff := cmp.Diff(resources, got.Resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	callers := []statusz.Caller{
		{UserAgent: "a/1", Lists: 3, Reason: "most-recent"},
		{UserAgent: "(none)", Lists: 1, Reason: "streaming"},
		{UserAgent: "b/1", Lists: 1, Reason: "representation"},
	}
	if diff := cmp.Diff(callers, got.Callers); diff != "" {
		t.Errorf("callers (-want +got):\n%s", diff)
	}
	if !got.Healthy || got.Memory != (statusz.Memory{Stored: 10, StoredBound: 100, Compressed: 7, CompressedBound: 70}) {
		t.Errorf("healthy %v, %+v", got.Healthy, got.Memory)
	}
	c := got.Collections[0]
	if c.Restarts != 2 || c.Revision != 9 || c.State != statusz.StateLive || c.Window != 150 || c.History < 60 ||
		len(c.Spans) != 2 || c.Spans[1] != (statusz.Span{From: 6, To: 9}) || c.Lag == nil || c.Objects != 3 {
		t.Errorf("the collection is %+v", c)
	}
}

// TestStatusIsHealthy: what makes it ill, and what does not.
func TestStatusIsHealthy(t *testing.T) {
	o, metrics := observetest.New(t, nil)
	for name, tt := range map[string]struct {
		change  func(*StatusSource)
		problem string // the check that is not OK
		says    string
		state   string
	}{
		"well": {},
		"not ready": {change: func(s *StatusSource) {
			s.Ready = func() (bool, []statusz.Check) { return false, []statusz.Check{{Name: "schemas"}} }
		}, problem: "schemas"},
		"silent":        {change: func(s *StatusSource) { s.set(collectionStats("pods", time.Hour, reason.None)) }, problem: "feeds", says: "pods/json", state: "stale"},
		"not permitted": {change: func(s *StatusSource) { s.set(collectionStats("nodes", time.Hour, reason.NotPermitted)) }, state: "not-permitted"},
		"metrics": {change: func(s *StatusSource) {
			s.Metrics = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("broken") })
		}, problem: "metrics", says: "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			source := newStatusSource(o, metrics.Gatherer())
			if tt.change != nil {
				tt.change(source)
			}
			got := source.Read()
			if got.Healthy != (tt.problem == "") {
				t.Errorf("healthy is %v", got.Healthy)
			}
			for _, c := range got.Checks {
				if c.OK != (c.Name != tt.problem) || !c.OK && !strings.Contains(c.Message, tt.says) {
					t.Errorf("check %+v", c)
				}
			}
			if tt.state != "" && got.Collections[0].State != tt.state {
				t.Errorf("the state is %s, want %s", got.Collections[0].State, tt.state)
			}
		})
	}
}

func (s *StatusSource) set(collections ...snapshot.CollectionStats) {
	s.Collections = func() []snapshot.CollectionStats { return collections }
}

// TestStatusNamesFew: with the upstream away and many collections a line stays one that can be
// read, and says what to look at.
func TestStatusNamesFew(t *testing.T) {
	o, metrics := observetest.New(t, nil)
	source := newStatusSource(o, metrics.Gatherer())
	var all []snapshot.CollectionStats
	for i := range 500 {
		all = append(all, collectionStats(fmt.Sprintf("r%03d", i), time.Hour, reason.None))
	}
	source.set(all...)
	source.Ready = func() (bool, []statusz.Check) {
		return false, []statusz.Check{{Name: "discovery"}, {Name: "x"}}
	}
	said := map[string]string{}
	for _, c := range source.Read().Checks {
		said[c.Name] = c.Message
	}
	if got, want := said["feeds"], "nothing new was heard of these for longer than --staleness-bound, so lists of their newest state are forwarded (stale): r000/json, r001/json, r002/json, r003/json, r004/json and 495 more"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if !strings.Contains(said["discovery"], "log") || said["x"] != "" {
		t.Errorf("checks say %q", said)
	}
}

// TestSilentIsNotLive: the metric says of a collection what the page says.
func TestSilentIsNotLive(t *testing.T) {
	o, metrics := observetest.New(t, nil)
	s := newStatusSource(o, metrics.Gatherer(), collectionStats("pods", 91*time.Second, reason.None), collectionStats("nodes", 0, reason.None))
	expect.NoError(t, RegisterState(metrics, s.State))
	families, err := metrics.Gatherer().Gather()
	expect.NoError(t, err)
	got := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "listproxy_collection_live" {
			continue
		}
		for _, m := range family.GetMetric() {
			label := map[string]string{}
			for _, pair := range m.GetLabel() {
				label[pair.GetName()] = pair.GetValue()
			}
			got[label["resource"]+" "+label["reason"]] = m.GetGauge().GetValue()
		}
	}
	expect.Same(t, map[string]float64{"pods stale": 0, "nodes none": 1}, got)
}

// TestStatusOfEndpoints: the page has what checks found, and nothing without --upstream.
func TestStatusOfEndpoints(t *testing.T) {
	o, metrics := observetest.New(t, nil)
	source := newStatusSource(o, metrics.Gatherer())
	var none *upstream.Endpoints
	source.Endpoints = none.Stats
	if got := source.Read().Endpoints; got != nil {
		t.Errorf("without --upstream: %+v", got)
	}
	source.Endpoints = func() []upstream.EndpointStats {
		return []upstream.EndpointStats{
			{Address: "a:1", State: "up", Since: time.Now(), Version: "v1.36.3", Connections: 1},
			{Address: "b:1", State: "not-ready", Since: time.Now(), Version: "v1.35.4", Problem: "/readyz answered 500"},
			{Address: "c:1", State: "unknown", Since: time.Now()},
		}
	}
	got := source.Read().Endpoints
	for i := range got {
		if got[i].Seconds < 0 || got[i].Seconds > 3600 {
			t.Errorf("%s is as it is for %v s", got[i].Address, got[i].Seconds)
		}
		got[i].Seconds = 0
	}
	want := []statusz.Endpoint{
		{Address: "a:1", State: "up", Meaning: "up", Version: "v1.36.3", Connections: 1},
		{Address: "b:1", State: "not-ready", Meaning: "not ready", Version: "v1.35.4", Error: "/readyz answered 500"},
		{Address: "c:1", State: "unknown", Meaning: "not checked yet"},
	}
	expect.Same(t, want, got)
}

// TestWatchesAreNoLists: a forwarded watch counts as no list, whatever it was forwarded for, and
// whether its semantics were known. A streaming list counts as one.
func TestWatchesAreNoLists(t *testing.T) {
	const watch, stream = "/api/v1/pods?watch=1&resourceVersion=5", "/api/v1/pods?watch=1&sendInitialEvents=true"
	for name, tt := range map[string]struct {
		target    string
		semantics policy.Semantics
		reason    reason.Reason
		code      int
		want      statusz.Lists
	}{
		"a list":                       {"/api/v1/pods", policy.MostRecent, reason.MostRecent, 200, statusz.Lists{Forwarded: 1, Newest: statusz.Newest{Forwarded: 1}}},
		"no switch":                    {watch, "", reason.Watch, 200, statusz.Lists{Other: 1}},
		"no history":                   {watch, policy.After, reason.History, 200, statusz.Lists{Other: 1}},
		"of a table":                   {watch, "", reason.Representation, 200, statusz.Lists{Other: 1}},
		"by path":                      {"/api/v1/watch/pods", "", reason.Parameter, 200, statusz.Lists{Other: 1}},
		"from the newest state on":     {"/api/v1/pods?watch=1", policy.MostRecent, reason.Warming, 200, statusz.Lists{Other: 1}},
		"streaming, no switch":         {stream, "", reason.Watch, 200, statusz.Lists{Streaming: 1}},
		"streaming, of the newest":     {stream, policy.MostRecent, reason.NotProven, 200, statusz.Lists{Streaming: 1}},
		"streaming, of any state":      {stream, policy.Any, reason.Warming, 200, statusz.Lists{Streaming: 1}},
		"streaming, by nobody known":   {stream, "", reason.Anonymous, 200, statusz.Lists{Streaming: 1}},
		"streaming, which was refused": {stream, policy.Any, reason.NotAllowed, 403, statusz.Lists{Other: 1}},
		"no resource":                  {"/healthz", "", reason.NotList, 200, statusz.Lists{Other: 1}},
	} {
		o, metrics := observetest.New(t, nil)
		observetest.Request(o, httptest.NewRequest(http.MethodGet, tt.target, nil), func(s *observe.Record, w http.ResponseWriter) {
			s.Decided(policy.Request{Version: "v1", Resource: "pods"}, tt.semantics, tt.reason)
			answerWith(s, w, tt.code)
		})
		status := newStatusSource(o, metrics.Gatherer()).Read()
		got := status.Lists
		var reasons, resources int64
		for _, r := range got.Reasons {
			reasons += r.Lists
		}
		for _, r := range status.Resources {
			resources += r.Forwarded + r.Streaming
		}
		lists := tt.want.Forwarded + tt.want.Streaming
		if reasons != lists || resources != lists || int64(len(status.Callers)) != lists || int64(len(status.Resources)) != lists {
			t.Errorf("%s: by reason %d, by resource %+v, callers %+v", name, reasons, status.Resources, status.Callers)
		}
		if lists > 0 {
			tt.want.Share = new(float64)
		}
		got.Reasons = nil
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestOpenStreamsAreNotOthers: a streaming list counts when it begins, and among other requests
// never.
func TestOpenStreamsAreNotOthers(t *testing.T) {
	o, metrics := observetest.New(t, nil)
	pods := policy.Request{Version: "v1", Resource: "pods"}
	goOn, done := make(chan struct{}), make(chan struct{})
	begun := make(chan struct{})
	go func() {
		defer close(done)
		stream := httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=1&sendInitialEvents=true", nil)
		observetest.Request(o, stream, func(s *observe.Record, w http.ResponseWriter) {
			s.Decided(pods, "", reason.Watch)
			answerWith(s, w, http.StatusOK)
			close(begun)
			<-goOn
		})
	}()
	<-begun
	observetest.Request(o, httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/a/pods", nil), func(s *observe.Record, w http.ResponseWriter) {
		s.Decided(policy.Request{}, "", reason.NotList)
		answerWith(s, w, http.StatusCreated)
	})
	source := newStatusSource(o, metrics.Gatherer())
	for _, when := range []string{"open", "ended"} {
		if got := source.Read().Lists; got.Streaming != 1 || got.Other != 1 {
			t.Errorf("%s: %d streaming, %d others", when, got.Streaming, got.Other)
		}
		if when == "open" {
			close(goOn)
			<-done
		}
	}
}

// TestStatusOfTheNewestState: lists of the newest state are counted by what became of them, and
// apart from all others; so is what the switch would have done with them. A client that leaves has
// not been failed.
func TestStatusOfTheNewestState(t *testing.T) {
	o, metrics := observetest.New(t, nil)
	for _, list := range []struct {
		semantics policy.Semantics
		why       reason.Reason
	}{
		{policy.MostRecent, reason.None},
		{policy.MostRecent, reason.None},
		{policy.MostRecent, reason.MostRecent},
		{policy.MostRecent, reason.FasterForwarded},
		{policy.MostRecent, reason.NotProven},
		{policy.Any, reason.None},
		{policy.Exact, reason.History},
		{policy.After, reason.None}, // watches are no lists
		{policy.After, reason.History},
	} {
		target := "/api/v1/pods"
		if list.semantics == policy.After {
			target += "?watch=1&resourceVersion=5"
		}
		observetest.Request(o, httptest.NewRequest(http.MethodGet, target, nil), func(s *observe.Record, w http.ResponseWriter) {
			s.Decided(policy.Request{Version: "v1", Resource: "pods"}, list.semantics, list.why)
			answerWith(s, w, http.StatusOK)
		})
	}
	for _, why := range []reason.Reason{reason.None, reason.None, reason.FasterForwarded, reason.Warming} {
		o.Estimate(why)
	}
	want := statusz.Newest{Proven: 2, Forwarded: 3, Estimated: 4, WouldAnswer: 2}
	lists := newStatusSource(o, metrics.Gatherer()).Read().Lists
	if got := lists.Newest; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if lists.Answered != 3 || lists.Forwarded != 4 {
		t.Errorf("%d lists answered, %d forwarded, want 3 and 4", lists.Answered, lists.Forwarded)
	}

	ctx, leave := context.WithCancel(t.Context())
	o.Proving(ctx)(reason.None)
	o.Proving(ctx)(reason.NotProven)
	leave()
	o.Proving(ctx)(reason.NotProven)
	series := proxytest.Series(proxytest.Gather(t, metrics)["listproxy_proof_duration_seconds"])
	if len(series) != 3 || series[0] != "result=gone 1" || series[1] != "result=not-proven 1" || series[2] != "result=proven 1" {
		t.Errorf("proofs are counted as %q", series)
	}
}
