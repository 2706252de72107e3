package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// delimited is the form of metrics that needs no parser of its own.
const delimited = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"

// Sample is what a process takes at one moment.
type Sample struct {
	At time.Time
	// Rest is in which rest of the run it was taken, from 1 on, and 0 if in none: a time in which
	// nothing is broken, and all that is to be given back has been. It is for the caller to say.
	Rest int
	// RSS is the resident memory, Free how much of that the runtime keeps for what it needs next, and
	// Heap what the last collection of garbage left of the heap, in bytes.
	RSS, Free, Heap float64
	// Goroutines and FDs (open file descriptors) are numbers.
	Goroutines, FDs float64
	// Upstream is how many connections the process has to the API server, as that sees it.
	Upstream float64
	// Checks are self-checks so far, Agreements those that found all as it is kept, and Mismatches
	// those that found something wrong.
	Checks, Agreements, Mismatches float64
	// Collections are those that the process keeps.
	Collections []Collection

	// goal is the size of the heap at which garbage is collected next, and percent is GOGC. idle is
	// what nothing on the heap is in, and released how much of it was given back.
	goal, percent, idle, released float64
}

// Collection is a resource, such as "pods", in a representation, as the metrics call them.
type Collection struct{ Resource, Representation string }

// Take reads the metrics at a URL. Rest and Upstream are the caller's to add.
func Take(ctx context.Context, url string) (Sample, error) {
	s, found := Sample{At: time.Now()}, 0
	if err := Families(ctx, http.DefaultClient, url, func(family *dto.MetricFamily) { found += s.take(family) }); err != nil {
		return s, err
	}
	if found < 7 {
		return s, errors.New("the process collectors' metrics are missing")
	}
	s.Free = s.idle - s.released
	var err error
	s.Heap, err = left(s.goal, s.percent)
	return s, err
}

// collections is how often [Collect] has garbage collected: a sync.Pool lets go of what it has with
// the second, and what a finalizer or a cleanup had kept goes with those after it. Each also makes
// stacks smaller that have grown.
const collections = 5

// Collect has the process whose /debug/pprof is at the URL collect all garbage, so that the next
// [Sample] has a floor.
func Collect(ctx context.Context, url string) error {
	for range collections {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/debug/pprof/heap?gc=1", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body) // until then it is one of few readers at a time
		_ = resp.Body.Close()
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("collecting garbage: %s", resp.Status)
		}
	}
	return nil
}

// take takes in a family, and says of how many of the gauges that there must be it was.
func (s *Sample) take(family *dto.MetricFamily) int {
	gauge := map[string]*float64{
		"process_resident_memory_bytes":   &s.RSS,
		"go_memstats_heap_idle_bytes":     &s.idle,
		"go_memstats_heap_released_bytes": &s.released,
		"go_memstats_next_gc_bytes":       &s.goal,
		"go_gc_gogc_percent":              &s.percent,
		"go_goroutines":                   &s.Goroutines,
		"process_open_fds":                &s.FDs,
	}[family.GetName()]
	if gauge != nil && len(family.GetMetric()) == 1 {
		*gauge = family.GetMetric()[0].GetGauge().GetValue()
		return 1
	}
	for _, series := range family.GetMetric() {
		switch family.GetName() {
		case "listproxy_selfchecks_total":
			s.check(label(series, "result"), series.GetCounter().GetValue())
		case "listproxy_collection_live":
			s.Collections = append(s.Collections, Collection{label(series, "resource"), label(series, "representation")})
		}
	}
	return 0
}

func (s *Sample) check(result string, n float64) {
	s.Checks += n
	switch result {
	case "mismatch":
		s.Mismatches += n
	case "agrees":
		s.Agreements += n
	}
}

// label of a series, or "".
func label(series *dto.Metric, name string) string {
	for _, l := range series.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// left is what the last collection of garbage left of the heap, by the goal that it set for the
// next one: that is what it left, and GOGC percent of that and of what stacks and global variables
// take (gcPercentHeapGoal in runtime/mgcpacer.go). So a part of those is in it, too. What is
// allocated at a moment has garbage in it, and is anything between this and the goal. It fails
// where the goal is none that GOGC sets.
func left(goal, percent float64) (float64, error) {
	const most = 1000 // GOGC=off is more than any number that somebody would set
	if percent <= 0 || percent > most {
		return 0, fmt.Errorf("with GOGC=%.0f the goal of the next collection does not tell what the last one left", percent)
	}
	return goal * 100 / (100 + percent), nil
}
