package soak

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func TestGrowth(t *testing.T) {
	const mib = 1 << 20
	series := func(rss, goroutines func(i int) float64) []Sample {
		var all []Sample
		for i := range 30 {
			all = append(all, Sample{RSS: rss(i), Goroutines: goroutines(i), FDs: 40, Upstream: 3})
		}
		return all
	}
	growing := series(func(int) float64 { return 100 * mib }, func(int) float64 { return 200 })
	for i := range growing {
		growing[i].Heap = 20*mib + float64(i)*mib/2
	}
	flat := func(n float64) func(int) float64 { return func(int) float64 { return n } }
	for _, tt := range []struct {
		name    string
		samples []Sample
		want    []string
	}{
		{"flat", series(flat(100*mib), flat(200)), nil},
		{"a beginning", series(func(i int) float64 { return 10*mib + float64(min(i, 10))*20*mib }, flat(200)), nil},
		{"a moment", series(flat(100*mib), func(i int) float64 {
			if i > 25 {
				return 5000
			}
			return 200
		}), nil},
		{"memory", series(func(i int) float64 { return 100*mib + float64(i)*2*mib }, flat(200)), []string{"resident memory"}},
		{"a little memory", series(func(i int) float64 { return 100*mib + float64(i)*mib }, flat(200)), nil},
		{"heap", growing, []string{"heap"}},
		{"goroutines", series(flat(100*mib), func(i int) float64 { return 200 + 4*float64(i) }), []string{"goroutines"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, err := Grown(tt.samples)
			if err != nil {
				t.Fatal(err)
			}
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
	if _, err := Grown(make([]Sample, fewest-1)); err == nil {
		t.Error("few samples tell growth")
	}
}

// TestTake reads what a real registry serves.
func TestTake(t *testing.T) {
	registry := prometheus.NewRegistry()
	checks := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "listproxy_selfchecks_total"}, []string{"result"})
	checks.WithLabelValues("agrees").Add(5)
	checks.WithLabelValues("mismatch").Add(2)
	registry.MustRegister(checks)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	if _, err := Take(t.Context(), server.URL); err == nil {
		t.Error("without a process's metrics there is a sample")
	}
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s, err := Take(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if s.RSS < s.Heap || s.Heap == 0 || s.Goroutines == 0 || s.FDs == 0 || s.At.IsZero() || s.Checks != 7 || s.Agreements != 5 || s.Mismatches != 2 {
		t.Errorf("got %+v", s)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	defer gone.Close()
	if _, err := Take(t.Context(), gone.URL); err == nil {
		t.Error("a 404 is a sample")
	}
}
