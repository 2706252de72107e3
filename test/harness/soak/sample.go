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

// delimited is the content type of metrics in protobuf, which need no parser of our own.
const delimited = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"

// Sample is what a process uses at one time.
type Sample struct {
	At time.Time
	// Rest is the number of the rest in which the sample was taken, from 1 on. At a rest there is no load and no fault, and the
	// memory of what has ended is free. The caller sets it.
	Rest int
	// RSS is the resident memory. Free is the part of it that is free, but that the Go runtime keeps for later. Heap is the
	// heap after a garbage collection. All are in bytes.
	RSS, Free, Heap float64
	// Goroutines and FDs are the numbers of goroutines and of open file descriptors.
	Goroutines, FDs float64
	// Upstream is the number of connections to the API server. The caller sets it.
	Upstream float64
}

// TakeSample makes the process with this admin URL collect its garbage, and returns a sample from its metrics.
func TakeSample(ctx context.Context, url string) (Sample, error) {
	if err := collectGarbage(ctx, url); err != nil {
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
		value, ok := gauges[name]
		if !ok {
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

// garbageCollections is the number of garbage collections before a sample. The second one frees what a sync.Pool held, and
// later ones what finalizers and cleanups held. Each also shrinks stacks.
const garbageCollections = 5

// collectGarbage makes a process collect its garbage, by its /debug/pprof.
func collectGarbage(ctx context.Context, url string) error {
	for range garbageCollections {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/debug/pprof/heap?gc=1", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body) // the admin port refuses a second reader until the end
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
