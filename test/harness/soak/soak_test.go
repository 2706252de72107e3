package soak

import (
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/listproxy/listproxy/test/expect"
)

const mib = 1 << 20

// usual is what a process takes that is at work, and rests for five seconds at the end of each
// sixth of the time, from the second on. Even then garbage is collected and requests come and go.
func usual(i, sixth int) Sample {
	s := Sample{
		RSS: 60*mib + float64(i%7)*2*mib, Heap: 12*mib + float64(i%11)*mib/2,
		Goroutines: 105 + float64(i%13)*4, FDs: 18 + float64(i%5)*3, Upstream: 3 + float64(i%3),
	}
	if i >= 2*sixth && i%sixth < 5 {
		s.Rest = i/sixth - 1
		s.RSS, s.Heap = 58*mib+float64(i%2)*mib, 8*mib+float64(i%3)*mib
		s.Goroutines, s.FDs, s.Upstream = 80+float64(i%4), 15+float64(i%2), 2+float64(i%2)
	}
	return s
}

func TestGrowth(t *testing.T) {
	// A leak of so much in ten minutes.
	in := func(i int, each float64) float64 { return each * float64(i) / 600 }
	for _, tt := range []struct {
		name   string
		lasts  time.Duration // half an hour if 0
		change func(i int, s *Sample)
		want   []string
	}{
		{name: "flat"},
		{name: "flat, and short", lasts: 2 * time.Minute},
		{name: "a beginning", change: func(i int, s *Sample) {
			s.Heap += float64(min(i, 600)) * mib / 10
			s.RSS += float64(min(i, 600)) * mib / 10
			s.Goroutines += float64(min(i, 600))
		}},
		{name: "a moment", change: func(i int, s *Sample) {
			if i > 1600 && i < 1700 || i == 1803 {
				s.Goroutines += 5000
			}
		}},
		{name: "more of all between rests", change: func(i int, s *Sample) {
			if i > 900 && s.Rest == 0 {
				s.Heap, s.Goroutines, s.FDs = 500*mib, 5000, 5000
			}
		}},
		{name: "ever higher, and back each time", change: func(i int, s *Sample) {
			if i%5 != 0 {
				s.Heap += float64(i) * mib / 10
				s.Goroutines += float64(i)
			}
		}},
		{name: "a first rest that happens to be low", change: func(_ int, s *Sample) {
			if s.Rest == 1 {
				s.Heap -= 1.4 * mib
			}
		}},
		{name: "memory that the runtime gives back later", change: func(i int, s *Sample) { s.RSS, s.Free = s.RSS+in(i, 16*mib), in(i, 16*mib) }},
		// These were flat, when medians were held against each other with much slack.
		{name: "a slow leak of memory", change: func(i int, s *Sample) { s.Heap += in(i, 4*mib); s.RSS += in(i, 4*mib) }, want: []string{"resident memory in use", "heap"}},
		{name: "a slow leak of resident memory", change: func(i int, s *Sample) { s.RSS += in(i, 16*mib) }, want: []string{"resident memory in use"}},
		{name: "a slow leak of heap", change: func(i int, s *Sample) { s.Heap += in(i, 1.5*mib) }, want: []string{"heap"}},
		{name: "a slow leak of goroutines", change: func(i int, s *Sample) { s.Goroutines += math.Floor(in(i, 8)) }, want: []string{"goroutines"}},
		{name: "a slow leak of descriptors", change: func(i int, s *Sample) { s.FDs += math.Floor(in(i, 8)) }, want: []string{"file descriptors"}},
		{name: "a slow leak of connections", change: func(i int, s *Sample) { s.Upstream += math.Floor(in(i, 8)) }, want: []string{"connections to the API server"}},
		{name: "a leak in ten minutes", lasts: 10 * time.Minute, change: func(i int, s *Sample) { s.Heap += in(i, 5*mib); s.Goroutines += math.Floor(in(i, 24)) }, want: []string{"heap", "goroutines"}},
		{name: "a leak in two minutes", lasts: 2 * time.Minute, change: func(i int, s *Sample) { s.Goroutines += float64(i) }, want: []string{"goroutines"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.lasts == 0 {
				tt.lasts = 30 * time.Minute
			}
			began := time.Now()
			var samples []Sample
			sixth := int(tt.lasts.Seconds()) / 6
			for i := range 6*sixth + 5 {
				s := usual(i, sixth)
				s.At = began.Add(time.Duration(i) * time.Second)
				if tt.change != nil {
					tt.change(i, &s)
				}
				samples = append(samples, s)
			}
			all, err := Grown(samples)
			expect.NoError(t, err)
			var got []string
			for _, g := range all {
				if g.Grows() {
					got = append(got, g.Name)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s\n%v", diff, all)
			}
		})
	}
}

// TestNothingToTell: without two rests nothing is flat.
func TestNothingToTell(t *testing.T) {
	for name, samples := range map[string][]Sample{"nothing": nil, "no rest": make([]Sample, 9), "one rest": {{}, {Rest: 1}, {Rest: 1}, {}}} {
		if all, err := Grown(samples); err == nil {
			t.Errorf("of %s there is a verdict: %v", name, all)
		}
	}
}

// TestLeft holds what is told of the heap against the runtime's own word.
func TestLeft(t *testing.T) {
	kept := make([]byte, 64*mib)
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	percent := debug.SetGCPercent(100)
	debug.SetGCPercent(percent)
	got, err := left(float64(stats.NextGC), float64(percent))
	expect.NoError(t, err)
	if live := float64(len(kept)); got < live || got > live+32*mib {
		t.Errorf("%.1f MiB are left of a heap with %.1f MiB", got/mib, live/mib)
	}
	runtime.KeepAlive(kept)
	for _, off := range []float64{0, -1, math.MaxUint64} {
		if got, err := left(mib, off); err == nil {
			t.Errorf("with GOGC=%v %v are left", off, got)
		}
	}
}

// TestTake reads what a real registry serves.
func TestTake(t *testing.T) {
	registry := prometheus.NewRegistry()
	checks := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "listproxy_selfchecks_total"}, []string{"result"})
	checks.WithLabelValues("agrees").Add(5)
	checks.WithLabelValues("mismatch").Add(2)
	registry.MustRegister(checks)
	live := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "listproxy_collection_live"}, []string{"resource", "representation", "reason"})
	live.WithLabelValues("pods", "json", "none").Set(1)
	live.WithLabelValues("widgets.faults.test", "metadata-json", "warming").Set(0)
	registry.MustRegister(live)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	if _, err := Take(t.Context(), server.URL); err == nil {
		t.Error("without a process's metrics there is a sample")
	}
	runtime.GC() // what other tests left may be more than was ever resident
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s, err := Take(t.Context(), server.URL)
	expect.NoError(t, err)
	if s.RSS < s.Heap || s.Heap == 0 || s.Free <= 0 || s.Goroutines == 0 || s.FDs == 0 || s.At.IsZero() || s.Checks != 7 || s.Agreements != 5 || s.Mismatches != 2 {
		t.Errorf("got %+v", s)
	}
	want := []Collection{{"pods", "json"}, {"widgets.faults.test", "metadata-json"}}
	if diff := cmp.Diff(want, s.Collections); diff != "" {
		t.Errorf("collections, -want +got:\n%s", diff)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	defer gone.Close()
	if _, err := Take(t.Context(), gone.URL); err == nil {
		t.Error("a 404 is a sample")
	}
}
