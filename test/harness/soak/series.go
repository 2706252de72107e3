package soak

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"
)

// Sum returns the sum of the series of a metric that have these labels, and the number of these series: 0 if nothing was
// counted yet. The value of a histogram is its number of observations.
func Sum(ctx context.Context, client *http.Client, url, name string, labels map[string]string) (sum float64, series int, err error) {
	err = families(ctx, client, url, func(family *dto.MetricFamily) {
		if family.GetName() != name {
			return
		}
		for _, metric := range family.GetMetric() {
			matches := true
			for labelName, value := range labels {
				matches = matches && label(metric, labelName) == value
			}
			if matches {
				// A series has one of the three; the others are 0.
				sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
				series++
			}
		}
	})
	return sum, series, err
}

// families reads the metrics at a URL and calls visit with each family.
func families(ctx context.Context, client *http.Client, url string, visit func(*dto.MetricFamily)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", delimited)
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("reading metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("reading metrics: %s", resp.Status)
	}
	for in := bufio.NewReader(resp.Body); ; {
		family := &dto.MetricFamily{}
		err := protodelim.UnmarshalFrom(in, family)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading metrics: %w", err)
		}
		visit(family)
	}
}

// label returns the value of a label of a series, or "".
func label(series *dto.Metric, name string) string {
	for _, l := range series.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
