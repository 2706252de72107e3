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
	// Rest is in which rest of the run it was taken, from 1 on: a time in which nothing is broken, and
	// all that is to be given back has been. It is for the caller to say.
	Rest int
	// RSS is the resident memory, Free how much of that the runtime keeps for what it needs next, and
	// Heap what is left of the heap once garbage is collected, in bytes.
	RSS, Free, Heap float64
	// Goroutines and FDs (open file descriptors) are numbers.
	Goroutines, FDs float64
	// Upstream is how many connections the process has to the API server, as that sees it.
	Upstream float64
}

// Take has the process with this admin URL collect all garbage, so that what is left is a floor, and
// reads its metrics. Rest and Upstream are the caller's to add.
func Take(ctx context.Context, url string) (Sample, error) {
	if err := collect(ctx, url); err != nil {
		return Sample{}, err
	}
	gauges := map[string]float64{}
	if err := families(ctx, http.DefaultClient, url+"/metrics", func(family *dto.MetricFamily) {
		if series := family.GetMetric(); len(series) == 1 {
			gauges[family.GetName()] = series[0].GetGauge().GetValue()
		}
	}); err != nil {
		return Sample{}, err
	}
	var missing error
	gauge := func(name string) float64 {
		value, there := gauges[name]
		if !there {
			missing = errors.Join(missing, fmt.Errorf("there is no metric %s", name))
		}
		return value
	}
	return Sample{
		At: time.Now(), Heap: gauge("go_memstats_heap_alloc_bytes"), RSS: gauge("process_resident_memory_bytes"),
		Free:       gauge("go_memstats_heap_idle_bytes") - gauge("go_memstats_heap_released_bytes"),
		Goroutines: gauge("go_goroutines"), FDs: gauge("process_open_fds"),
	}, missing
}

// collections is how often [Take] has garbage collected: a sync.Pool lets go of what it has with
// the second, and what a finalizer or a cleanup had kept goes with those after it. Each also makes
// stacks smaller that have grown.
const collections = 5

// collect has a process collect garbage by its /debug/pprof.
func collect(ctx context.Context, url string) error {
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
