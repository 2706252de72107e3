package soak

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"
)

// delimited is the form of metrics that needs no parser of its own.
const delimited = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"

// Sample is what a process takes at one moment.
type Sample struct {
	At time.Time
	// RSS is the resident memory and Heap what Go has allocated of it, in bytes.
	RSS, Heap float64
	// Goroutines and FDs (open file descriptors) are numbers.
	Goroutines, FDs float64
	// Upstream is how many connections the process has to the API server, as that sees it.
	Upstream float64
	// Checks are self-checks so far, Agreements those that found all as it is kept, and Mismatches those that found
	// something wrong.
	Checks, Agreements, Mismatches float64
}

// Take reads the metrics at a URL. Upstream is the caller's to add.
func Take(ctx context.Context, url string) (Sample, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return Sample{}, err
	}
	req.Header.Set("Accept", delimited)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Sample{}, fmt.Errorf("reading metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Sample{}, fmt.Errorf("reading metrics: %s", resp.Status)
	}
	s, found := Sample{At: time.Now()}, 0
	for in := bufio.NewReader(resp.Body); ; {
		family := &dto.MetricFamily{}
		switch err := protodelim.UnmarshalFrom(in, family); {
		case errors.Is(err, io.EOF) && found < 4:
			return s, errors.New("the process collectors' metrics are missing")
		case errors.Is(err, io.EOF):
			return s, nil
		case err != nil:
			return s, fmt.Errorf("reading metrics: %w", err)
		}
		found += s.take(family)
	}
}

// take takes in a family, and says of how many of the gauges that there must be it was.
func (s *Sample) take(family *dto.MetricFamily) int {
	gauge := map[string]*float64{
		"process_resident_memory_bytes": &s.RSS,
		"go_memstats_heap_alloc_bytes":  &s.Heap,
		"go_goroutines":                 &s.Goroutines,
		"process_open_fds":              &s.FDs,
	}[family.GetName()]
	if gauge != nil && len(family.GetMetric()) == 1 {
		*gauge = family.GetMetric()[0].GetGauge().GetValue()
		return 1
	}
	if family.GetName() != "listproxy_selfchecks_total" {
		return 0
	}
	for _, series := range family.GetMetric() {
		n := series.GetCounter().GetValue()
		s.Checks += n
		for _, label := range series.GetLabel() {
			switch {
			case label.GetName() != "result":
			case label.GetValue() == "mismatch":
				s.Mismatches += n
			case label.GetValue() == "agrees":
				s.Agreements += n
			}
		}
	}
	return 0
}
